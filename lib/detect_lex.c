/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: cutting a text into tokens by the rules of Python or of JavaScript: strings, comments and regular expressions are no
 * code.  Pure; any thread.
 */
#include "detect_lex.h"

#include <string.h>

static bool word_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       (unsigned char)c >= 0x80;
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

bool sbx_token_is(const struct token *t, const char *text)
{
	return t->len == strlen(text) && t->kind != STRING && t->kind != WRONG &&
	       memcmp(t->text, text, t->len) == 0;
}

bool sbx_token_among(const struct token *t, const char *list)
{
	const char *p = list;

	if (t->kind != WORD && t->kind != OP)
		return false;
	while (*p) {
		size_t n;

		p += strspn(p, " ");
		n = strcspn(p, " ");
		if (n == t->len && n > 0 && memcmp(p, t->text, n) == 0)
			return true;
		p += n;
	}
	return false;
}

static const char python_words[] = " False None True and as assert async await break class "
				   "continue def del elif else except finally for from "
				   "global if import in is lambda nonlocal not or pass raise "
				   "return try while with yield match case type ";
static const char node_words[] = " async await break case catch class const continue debugger "
				 "default delete do else export extends finally "
				 "for from function get if import in instanceof let new of return "
				 "set static super switch throw try typeof "
				 "var void while with yield as ";

static void add(struct lexer *l, enum kind kind, const char *text, size_t len, unsigned int flags)
{
	struct token *t;

	if (l->n + 1 >= TOKENS_MAX)
		return;
	t = &l->tokens[l->n++];
	t->kind = (unsigned char)kind;
	t->text = text;
	t->len = (unsigned int)len;
	t->flags = (unsigned char)(flags | (l->first ? FIRST : 0) | (l->depth ? INNER : 0));
	if (l->depth && l->depth <= DEPTH_MAX && l->brackets[l->depth - 1] == '[')
		t->flags |= SUBSCRIPT;
	l->first = false;
}

static void wrong(struct lexer *l, unsigned int weight)
{
	add(l, WRONG, l->p, weight, 0);
}

static bool at(const struct lexer *l, const char *text)
{
	size_t n = strlen(text);

	return (size_t)(l->end - l->p) >= n && memcmp(l->p, text, n) == 0;
}

static void skip_line(struct lexer *l)
{
	const char *nl = memchr(l->p, '\n', (size_t)(l->end - l->p));

	l->p = nl ? nl : l->end;
}

static void skip_to(struct lexer *l, const char *close)
{
	const char *found = memmem(l->p, (size_t)(l->end - l->p), close, strlen(close));

	l->p = found ? found + strlen(close) : l->end;
}

/* p is behind the opening quote; a line end inside is an error */
static bool skip_quoted(struct lexer *l, char quote)
{
	for (; l->p < l->end; l->p++) {
		if (*l->p == '\\' && l->p + 1 < l->end)
			l->p++;
		else if (*l->p == '\n')
			return false;
		else if (*l->p == quote) {
			l->p++;
			return true;
		}
	}
	return false;
}

static void skip_triple(struct lexer *l, char quote)
{
	for (; l->p < l->end; l->p++) {
		if (*l->p == '\\' && l->p + 1 < l->end)
			l->p++;
		else if (l->end - l->p >= 3 && l->p[0] == quote && l->p[1] == quote &&
			 l->p[2] == quote) {
			l->p += 3;
			return;
		}
	}
}

/* p is behind the backtick; ${...} may hold strings and templates again: a stack of '`' and '{' */
static void skip_template(struct lexer *l)
{
	char stack[DEPTH_MAX] = "`";
	unsigned int n = 1;

	while (l->p < l->end && n > 0) {
		char c = *l->p++;

		if (stack[n - 1] == '`') {
			if (c == '\\' && l->p < l->end) {
				l->p++;
			} else if (c == '`') {
				n--;
			} else if (c == '$' && l->p < l->end && *l->p == '{' && n < DEPTH_MAX) {
				l->p++;
				stack[n++] = '{';
			}
		} else if (c == '`' || c == '{') {
			if (n == DEPTH_MAX)
				return;
			stack[n++] = c;
		} else if (c == '}') {
			n--;
		} else if (c == '"' || c == '\'') {
			skip_quoted(l, c);
		}
	}
}

static const struct token *last(const struct lexer *l)
{
	static const struct token none = { "", 0, END, 0 };

	return l->n ? &l->tokens[l->n - 1] : &none;
}

bool sbx_token_keyword(const struct token *t, enum lang lang)
{
	return sbx_token_among(t, lang == NODE ? node_words : python_words);
}

bool sbx_token_ends_operand(const struct token *t, enum lang lang)
{
	if (t->kind == NUMBER || t->kind == STRING || t->kind == REGEX)
		return true;
	if (t->kind == WORD)
		return !sbx_token_keyword(t, lang);
	return t->kind == OP && (sbx_token_is(t, ")") || sbx_token_is(t, "]") || sbx_token_is(t, "}"));
}

static void lex_string(struct lexer *l, unsigned int flags)
{
	const char *start = l->p;
	char quote = *l->p;

	if (l->end - l->p >= 3 && l->p[1] == quote && l->p[2] == quote) {
		if (l->lang == NODE)
			wrong(l, 5);
		l->p += 3;
		skip_triple(l, quote);
		add(l, STRING, start, (size_t)(l->p - start), flags | TRIPLE);
		return;
	}
	l->p++;
	if (skip_quoted(l, quote))
		add(l, STRING, start, (size_t)(l->p - start), flags);
	else
		wrong(l, 3);
}

static bool all_of(const char *from, const char *to, const char *set)
{
	for (; from < to; from++) {
		if (*from == '\0' || !strchr(set, *from))
			return false;
	}
	return true;
}

static void lex_word(struct lexer *l)
{
	const char *start = l->p;

	while (l->p < l->end &&
	       (word_start(*l->p) || digit(*l->p) || (*l->p == '$' && l->lang == NODE)))
		l->p++;
	if (l->lang == PYTHON && l->p < l->end && (*l->p == '"' || *l->p == '\'') &&
	    l->p - start <= 2 && all_of(start, l->p, "fFrRbBuUtT")) {
		lex_string(l, PREFIX);
		return;
	}
	add(l, WORD, start, (size_t)(l->p - start), 0);
}

static void lex_number(struct lexer *l)
{
	const char *start = l->p;

	while (l->p < l->end &&
	       (digit(*l->p) || word_start(*l->p) ||
		(*l->p == '.' && !(l->p + 1 < l->end && l->p[1] == '.')) ||
		((*l->p == '+' || *l->p == '-') && (l->p[-1] == 'e' || l->p[-1] == 'E') &&
		 !(start[0] == '0' && (start[1] | 32) == 'x'))))
		l->p++;
	add(l, NUMBER, start, (size_t)(l->p - start), 0);
}

/* true: it was one, and is passed */
static bool lex_regex(struct lexer *l)
{
	const char *start = l->p, *p;
	bool set = false;

	if (sbx_token_ends_operand(last(l), l->lang))
		return false;
	for (p = start + 1; p < l->end && *p != '\n'; p++) {
		if (*p == '\\' && p + 1 < l->end)
			p++;
		else if (*p == '[')
			set = true;
		else if (*p == ']')
			set = false;
		else if (*p == '/' && !set)
			break;
	}
	if (p >= l->end || *p != '/' || p == start + 1)
		return false;
	for (p++; p < l->end && strchr("dgimsuvy", *p); p++)
		;
	if (p < l->end && (word_start(*p) || digit(*p) || *p == '/')) /* a path: /usr/bin */
		return false;
	l->p = p;
	add(l, REGEX, start, (size_t)(p - start), 0);
	return true;
}

/* may a comment of the other language begin here, as nothing of this one can? */
static bool between(const struct lexer *l)
{
	const struct token *t = last(l);

	return l->first || (t->kind == OP && sbx_token_among(t, " ; { } ( , "));
}

/* comments of both languages; those of the other are passed too, and count against this one */
static bool lex_comment(struct lexer *l)
{
	if (*l->p == '#') {
		bool private = l->lang == NODE && l->p + 1 < l->end && word_start(l->p[1]) &&
			       (sbx_token_is(last(l), ".") || (l->depth && l->brackets[l->depth - 1] == '{'));

		if (private) {
			l->p++;
			return true;
		}
		if (l->lang == NODE && !(l->n == 0 && at(l, "#!")))
			wrong(l, 3);
		l->hash_comments++;
		l->first = true;
		skip_line(l);
		return true;
	}
	if (at(l, "//") && (l->lang == NODE || between(l))) {
		if (l->lang == PYTHON)
			wrong(l, 3);
		else if (between(l))
			l->slash_comments++;
		l->first = true;
		skip_line(l);
		return true;
	}
	if (at(l, "/*") && (l->lang == NODE || between(l))) {
		if (l->lang == PYTHON)
			wrong(l, 3);
		l->block_comments++;
		l->p += 2;
		skip_to(l, "*/");
		return true;
	}
	return false;
}

static void lex_bracket(struct lexer *l)
{
	char c = *l->p, open = c == ')' ? '(' : c == ']' ? '[' : '{';

	if (strchr("([{", c)) {
		add(l, OP, l->p, 1, 0);
		if (l->depth < DEPTH_MAX)
			l->brackets[l->depth] = c;
		l->depth++;
	} else {
		if (l->depth == 0) {
			wrong(l, 2);
		} else {
			l->depth--;
			if (l->depth < DEPTH_MAX && l->brackets[l->depth] != open)
				wrong(l, 2);
		}
		add(l, OP, l->p, 1, 0);
	}
	l->p++;
}

static void lex_operator(struct lexer *l)
{
	static const char *const python_ops[] = { "**=", "//=", ">>=", "<<=", "...", "->",
						  ":=",	 "==",	"!=",  "<=",  ">=",  "+=",
						  "-=",	 "*=",	"/=",  "//",  "**",  "<<",
						  ">>",	 "%=",	"&=",  "|=",  "^=",  NULL };
	static const char *const node_ops[] = { "===",
						"!==",
						"...",
						"**=",
						"&&=",
						"||=",
						"?"
						"?=",
						"=>",
						"==",
						"!=",
						"<=",
						">=",
						"&&",
						"||",
						"??",
						"?.",
						"++",
						"--",
						"+=",
						"-=",
						"*=",
						"/=",
						"**",
						"<<",
						">>",
						"%=",
						"&=",
						"|=",
						"^=",
						NULL };
	const char *const *ops = l->lang == PYTHON ? python_ops : node_ops;

	for (; *ops; ops++) {
		if (at(l, *ops)) {
			add(l, OP, l->p, strlen(*ops), 0);
			l->p += strlen(*ops);
			return;
		}
	}
	if (strchr(l->lang == PYTHON ? "?$!\\" : "@\\", *l->p) && *l->p != '\0') {
		if (*l->p == '\\' && l->p + 1 < l->end && (l->p[1] == '\n' || l->p[1] == '\r')) {
			l->p += 2; /* a line goes on */
			return;
		}
		wrong(l, 3);
	} else {
		add(l, OP, l->p, 1, 0);
	}
	l->p++;
}

void sbx_lex(struct lexer *l)
{
	l->first = true;
	while (l->p < l->end && l->n + 2 < TOKENS_MAX) {
		char c = *l->p;

		if (c == '\n') {
			l->first = true;
			l->p++;
		} else if (c == ' ' || c == '\t' || c == '\r' || c == '\f') {
			l->p++;
		} else if (lex_comment(l)) {
			continue;
		} else if (word_start(c) || (c == '$' && l->lang == NODE)) {
			lex_word(l);
		} else if (digit(c) || (c == '.' && l->p + 1 < l->end && digit(l->p[1]))) {
			lex_number(l);
		} else if (c == '"' || c == '\'') {
			lex_string(l, 0);
		} else if (c == '`') {
			const char *start = l->p++;

			if (l->lang == PYTHON)
				wrong(l, 5);
			skip_template(l);
			add(l, STRING, start, (size_t)(l->p - start), TEMPLATE);
		} else if (strchr("()[]{}", c) && c != '\0') {
			lex_bracket(l);
		} else if (c == '/' && l->lang == NODE && lex_regex(l)) {
			continue;
		} else {
			lex_operator(l);
		}
	}
	l->tokens[l->n] = (struct token){ "", 0, END, FIRST };
}
