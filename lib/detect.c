/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: telling Python from JavaScript.  The text is cut into tokens twice, once by each language's rules, so that
 * strings, comments and regular expressions do not count as code; then each reading is weighed: what
 * only that language has counts for it, what it does not allow counts against it.  Pure; any thread.
 */
#include "detect.h"

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (64 * 1024)
#define TOKENS_MAX 16384
#define DEPTH_MAX 64

/* what a language must have for itself, and by how much it must win */
#define ENOUGH 2

enum lang { PYTHON, NODE };

enum kind {
	END,
	WORD,
	NUMBER,
	STRING,
	REGEX,
	OP,
	WRONG, /* something that this language cannot have; `len` is the weight against it */
};

enum flag {
	FIRST = 1,	/* first token of a line */
	PREFIX = 2,	/* a string with letters in front: f"..." */
	TRIPLE = 4,	/* a string with three quotes */
	TEMPLATE = 8,	/* a string in backticks */
	INNER = 16,	/* inside brackets */
	SUBSCRIPT = 32, /* the innermost bracket is [ */
};

struct token {
	const char *text;
	unsigned int len;
	unsigned char kind, flags;
};

struct lexer {
	enum lang lang;
	const char *p, *end;
	struct token *tokens;
	size_t n;
	unsigned int depth;
	char brackets[DEPTH_MAX];
	bool first;
	int hash_comments, slash_comments, block_comments;
};

static bool word_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       (unsigned char)c >= 0x80;
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is(const struct token *t, const char *text)
{
	return t->len == strlen(text) && t->kind != STRING && t->kind != WRONG &&
	       memcmp(t->text, text, t->len) == 0;
}

/* @list: words between blanks, " a b c " */
static bool among(const struct token *t, const char *list)
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

static bool operand_end(const struct lexer *l, const struct token *t)
{
	if (t->kind == NUMBER || t->kind == STRING || t->kind == REGEX)
		return true;
	if (t->kind == WORD)
		return !among(t, l->lang == NODE ? node_words : python_words);
	return t->kind == OP && (is(t, ")") || is(t, "]") || is(t, "}"));
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

	if (operand_end(l, last(l)))
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

	return l->first || (t->kind == OP && among(t, " ; { } ( , "));
}

/* comments of both languages; those of the other are passed too, and count against this one */
static bool lex_comment(struct lexer *l)
{
	if (*l->p == '#') {
		bool private = l->lang == NODE && l->p + 1 < l->end && word_start(l->p[1]) &&
			       (is(last(l), ".") || (l->depth && l->brackets[l->depth - 1] == '{'));

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

static void lex(struct lexer *l)
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

/* ---- weighing ---- */

/* points that count only so often, so that one habit does not decide */
struct score {
	int points;
	int names, literals, ends, blocks, logic;
};

static void capped(struct score *s, int *count, int max, int points)
{
	if ((*count)++ < max)
		s->points += points;
}

/* the statement that begins at @t: has its line a ':' outside of brackets opened in it? */
static bool line_has_colon(const struct token *t)
{
	int depth = 0;
	const struct token *first = t;

	for (; t->kind != END; t++) {
		if (t != first && (t->flags & FIRST) && depth <= 0)
			return false;
		if (t->kind != OP)
			continue;
		if (among(t, " ( [ { "))
			depth++;
		else if (among(t, " ) ] } "))
			depth--;
		else if (depth == 0 && is(t, ":"))
			return true;
	}
	return false;
}

/* does a line, from @t on, hold the word @text? */
static const struct token *line_find(const struct token *t, const char *text)
{
	for (t++; t->kind != END && !(t->flags & FIRST); t++) {
		if (is(t, text))
			return t;
	}
	return NULL;
}

/* two operands with nothing between them on one line: no sentence of either language */
static bool side_by_side(const struct token *a, const struct token *b, enum lang lang)
{
	const char *words = lang == PYTHON ? python_words : node_words;
	bool left, right;

	if (b->flags & FIRST)
		return false;
	if (lang == PYTHON && a->kind == STRING && b->kind == STRING)
		return false;
	if ((a->kind == STRING && (a->flags & PREFIX)) ||
	    (b->kind == STRING && (b->flags & TEMPLATE)))
		return false;
	left = a->kind == NUMBER || a->kind == STRING || a->kind == REGEX ||
	       (a->kind == WORD && !among(a, words)) ||
	       (a->kind == OP && (is(a, "]") || (lang == PYTHON && is(a, ")"))));
	right = b->kind == NUMBER || b->kind == STRING || b->kind == REGEX ||
		(b->kind == WORD && !among(b, words));
	return left && right;
}

static bool dunder(const struct token *t)
{
	return t->kind == WORD && t->len > 4 && memcmp(t->text, "__", 2) == 0 &&
	       memcmp(t->text + t->len - 2, "__", 2) == 0;
}

static void python_statement(const struct token *t, struct score *s)
{
	if (is(t, "def") && t[1].kind == WORD && is(t + 2, "("))
		s->points += line_has_colon(t) ? 5 : 0;
	else if (is(t, "class") && t[1].kind == WORD &&
		 (is(t + 2, ":") || (is(t + 2, "(") && line_has_colon(t))))
		s->points += 5;
	else if (is(t, "async") && among(t + 1, " def for with "))
		s->points += 5;
	else if (is(t, "from") && line_find(t, "import"))
		s->points += 6;
	else if (is(t, "import") && t[1].kind == WORD && !(t[1].flags & FIRST) &&
		 !line_find(t, "from") && !line_find(t, "="))
		s->points += 4;
	else if (is(t, "elif") || is(t, "except"))
		s->points += line_has_colon(t) ? 5 : 0;
	else if (is(t, "for") && line_has_colon(t) && t[1].kind == WORD && line_find(t, "in"))
		s->points += 4;
	else if (among(t, " if while with ") && line_has_colon(t))
		s->points += 3;
	else if (among(t, " try else finally ") && is(t + 1, ":"))
		s->points += 4;
	else if (is(t, "pass") && (t[1].flags & FIRST))
		s->points += 3;
	else if (among(t, " raise global nonlocal del ") && t[1].kind == WORD &&
		 !(t[1].flags & FIRST))
		s->points += 3;
	else if (is(t, "assert") && !is(t + 1, "(") && !is(t + 1, "."))
		s->points += 2;
	else if (is(t, "@") && t[1].kind == WORD)
		s->points += 2;
	else if (is(t, "print") && t[1].kind == STRING && !(t[1].flags & FIRST))
		s->points += 6; /* Python 2: its error message helps more than ours */
}

static void python_token(const struct token *t, const struct token *prev, struct score *s)
{
	static const char builtins[] =
		" len range str int float list dict set tuple enumerate zip sorted isinstance "
		"open input sum min max repr type super any all abs round ";

	if (t->kind == STRING)
		s->points += t->flags & (PREFIX | TRIPLE) ? 3 : 0;
	if (is(t, "print") && is(t + 1, "(") && !is(prev, "."))
		capped(s, &s->names, 3, 2);
	else if (t->kind == WORD && is(t + 1, "(") && !is(prev, ".") && among(t, builtins))
		capped(s, &s->names, 3, 1);
	if (among(t, " None True False "))
		capped(s, &s->literals, 3, 2);
	if (is(t, "lambda") && (t[1].kind == WORD || among(t + 1, " : * ")))
		s->points += 3;
	if (among(t, " and or not ") && !is(prev, ".") && t[1].kind != END &&
	    !(t[1].flags & FIRST) && !among(t + 1, " = . , ) : "))
		s->points += 2;
	if (is(t, "self") && is(t + 1, "."))
		capped(s, &s->blocks, 2, 2);
	if (dunder(t))
		s->points += 3;
	if (is(t, "->") || (is(t, ":=") && prev->kind == WORD))
		s->points += 3;
	if (is(t, "//") && prev->kind != OP)
		s->points += 1;
	if (is(t, ":") && (t->flags & SUBSCRIPT))
		capped(s, &s->logic, 2, 2);
	if (is(t, "for") && (t->flags & INNER) && t[1].kind == WORD && prev->kind != END)
		s->points += 3;
	/* what it does not allow */
	if ((is(t, "&") && is(t + 1, "&")) || (is(t, "|") && is(t + 1, "|")) ||
	    (is(t, "==") && is(t + 1, "=")) || (is(t, "=") && is(t + 1, ">")))
		s->points -= 3;
	if (is(prev, ")") && is(t, "{") && !(t->flags & FIRST))
		s->points -= 3;
	if (((is(t, "+") && is(t + 1, "+")) || (is(t, "-") && is(t + 1, "-"))) &&
	    (t[2].flags & FIRST || is(t + 2, ")") || is(t + 2, ";")))
		s->points -= 2;
}

static void node_statement(const struct token *t, struct score *s)
{
	static const char exported[] = " default const let var function class async { * ";

	if (is(t, "export"))
		s->points += among(t + 1, exported) ? 5 : -3;
	else if (is(t, "import")) {
		const struct token *from = line_find(t, "from");

		if (is(t + 1, "(") || is(t + 1, "."))
			s->points += 2;
		else if (is(t + 1, "{") || is(t + 1, "*"))
			s->points += 5;
		else if (from && from[1].kind == STRING)
			s->points += 5;
		else if (t[1].kind == STRING)
			s->points += 4;
		else
			s->points -= 3;
	} else if (among(t, " if while for ") && !is(t + 1, "(") &&
		   !(is(t, "for") && is(t + 1, "await")))
		s->points -= 3;
	else if (among(t, " else try finally ") && is(t + 1, ":"))
		s->points -= 3;
}

static void node_token(const struct token *t, const struct token *prev, struct score *s)
{
	bool member = is(prev, ".");

	if (t->kind == STRING)
		s->points += t->flags & TEMPLATE ? 3 : 0;
	if (t->kind == REGEX)
		s->points += 2;
	if (!member && among(t, " const let var ") &&
	    (t[1].kind == WORD || among(t + 1, " { [ ")) && !(t[1].flags & FIRST))
		s->points += 4;
	if (!member && is(t, "function") && (t[1].kind == WORD || among(t + 1, " ( * ")))
		s->points += 4;
	if (among(t, " => === !== "))
		s->points += 4;
	if (among(t, " && || ?? ?. "))
		capped(s, &s->logic, 1, 1);
	if (is(t, "!") && !operand_end(&(struct lexer){ .lang = NODE }, prev))
		s->points += 2;
	if (among(t, " ++ -- ") && (prev->kind == WORD || t[1].kind == WORD) &&
	    t[1].kind != NUMBER &&
	    !(prev->kind == WORD && t[1].kind == WORD && !(t[1].flags & FIRST)))
		s->points += 3;
	if (!member && is(t, "new") && t[1].kind == WORD && !(t[1].flags & FIRST))
		s->points += 3;
	if (!member && among(t, " console JSON ") && is(t + 1, "."))
		s->points += 4;
	if (!member && is(t, "require") && is(t + 1, "(") && t[2].kind == STRING)
		s->points += 4;
	if (is(t, "module") && is(t + 1, ".") && is(t + 2, "exports"))
		s->points += 4;
	if (!member && among(t, " process Math Object Promise document window ") &&
	    is(t + 1, ".") &&
	    among(t + 2, " stdout stdin argv env exit nextTick on floor random max min round PI "
			 "keys values entries "
			 "assign all resolve race querySelector getElementById addEventListener "
			 "location "))
		capped(s, &s->names, 3, 2);
	if (member && among(t, " length push forEach then toString toUpperCase toFixed indexOf "))
		capped(s, &s->names, 3, 1);
	if (among(t, " null undefined true false "))
		capped(s, &s->literals, 1, 1);
	if (!member && among(t, " typeof instanceof ") && (t[1].kind == WORD || is(t + 1, "(")))
		s->points += 3;
	if (is(t, "this") && is(t + 1, "."))
		s->points += 3;
	if (!member && is(t, "throw") && t[1].kind == WORD && !(t[1].flags & FIRST))
		s->points += 3;
	if ((is(t, "catch") && !member && among(t + 1, " ( { ")) ||
	    (among(t, " try finally do ") && is(t + 1, "{")))
		s->points += 3;
	if (is(t, "else") && (is(t + 1, "{") || is(t + 1, "if")))
		s->points += 3;
	if (is(t, "switch") && is(t + 1, "("))
		s->points += 3;
	if (!member && is(t, "for") && is(t + 1, "(") && (t->flags & FIRST))
		s->points += 1;
	if (is(t, "async") && (is(t + 1, "function") || is(t + 1, "(")))
		s->points += 5;
	if (!member && is(t, "class") && t[1].kind == WORD &&
	    (is(t + 2, "{") || is(t + 2, "extends")))
		s->points += 5;
	if (is(prev, ")") && is(t, "{"))
		capped(s, &s->blocks, 3, 3);
	if (is(t, ";") && (t[1].flags & FIRST))
		capped(s, &s->ends, 2, 1);
	if (is(t, "?") && t[1].kind != END)
		s->points += 1;
	/* what it does not allow */
	if ((is(t, "-") && is(t + 1, ">")) || (is(t, ":") && is(t + 1, "=")) ||
	    (is(t, ":") && is(t + 1, ":")))
		s->points -= 3;
}

/* words that begin a line in other languages and in shells, and nearly never one in these two */
static bool foreign(const struct token *t)
{
	static const char languages[] =
		" package func fn public private protected namespace using struct impl ";
	static const char shell[] =
		" ls cd echo cat mkdir sudo apt git npm npx pip curl wget grep rm cp mv set source "
		"fi done then esac make chmod docker touch ";

	if (t->kind != WORD)
		return false;
	if (among(t, languages))
		return t[1].kind == WORD && !(t[1].flags & FIRST);
	return among(t, shell) && !among(t + 1, " = ( . , [ : ) ] ; += ") && !(t[1].flags & FIRST);
}

static int weigh(const struct lexer *l)
{
	static const struct token none = { "", 0, END, FIRST };
	struct score s = { 0 };
	size_t i;

	for (i = 0; i < l->n; i++) {
		const struct token *t = &l->tokens[i], *prev = i ? t - 1 : &none;
		bool begins = (t->flags & FIRST) || is(prev, ";");

		if (t->kind == WRONG) {
			s.points -= (int)t->len;
			continue;
		}
		if (begins && foreign(t))
			s.points -= 6;
		if (side_by_side(prev, t, l->lang) && !(is(prev, "print") && t->kind == STRING))
			s.points -= 3;
		if (l->lang == PYTHON) {
			if (begins)
				python_statement(t, &s);
			python_token(t, prev, &s);
		} else {
			if (begins)
				node_statement(t, &s);
			node_token(t, prev, &s);
		}
	}
	if (l->n && l->tokens[0].kind == OP && among(&l->tokens[0], " < > | % = . , * "))
		s.points -= 4;
	if (l->lang == PYTHON && l->hash_comments)
		s.points += 1;
	if (l->lang == NODE)
		s.points += (l->slash_comments ? 2 : 0) + (l->block_comments ? 3 : 0);
	return s.points;
}

const char *sbx_detect_text(const char *text, size_t len)
{
	SBX_CLEANUP(sbx_freep) struct token *tokens = malloc((TOKENS_MAX + 4) * sizeof(*tokens));
	int score[2];
	int i;

	if (!tokens)
		return "";
	for (i = 0; i < 2; i++) {
		struct lexer l = { .lang = i == 0 ? PYTHON : NODE, .p = text, .tokens = tokens };

		l.end = text + (len > TEXT_MAX ? TEXT_MAX : len);
		/* lookahead of a few tokens behind the end must find ENDs */
		memset(tokens, 0, (TOKENS_MAX + 4) * sizeof(*tokens));
		lex(&l);
		memset(&tokens[l.n + 1], 0, 3 * sizeof(*tokens));
		score[i] = weigh(&l);
	}
	if (score[0] >= ENOUGH && score[0] > score[1])
		return "python";
	if (score[1] >= ENOUGH && score[1] > score[0])
		return "node";
	return "";
}
