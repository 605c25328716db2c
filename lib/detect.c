/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: telling Python from JavaScript.  The text is cut into tokens twice, once by each language's rules, so that
 * strings, comments and regular expressions do not count as code; then each reading is weighed: what
 * only that language has counts for it, what it does not allow counts against it.  Pure; any thread.
 */
#include "detect.h"

#include "base/cleanup.h"
#include "detect_lex.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (64 * 1024)

/* what a language must have for itself, and by how much it must win */
#define ENOUGH 2

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
		if (sbx_token_among(t, " ( [ { "))
			depth++;
		else if (sbx_token_among(t, " ) ] } "))
			depth--;
		else if (depth == 0 && sbx_token_is(t, ":"))
			return true;
	}
	return false;
}

/* does a line, from @t on, hold the word @text? */
static const struct token *line_find(const struct token *t, const char *text)
{
	for (t++; t->kind != END && !(t->flags & FIRST); t++) {
		if (sbx_token_is(t, text))
			return t;
	}
	return NULL;
}

/* two operands with nothing between them on one line: no sentence of either language */
static bool side_by_side(const struct token *a, const struct token *b, enum lang lang)
{
	bool left, right;

	if (b->flags & FIRST)
		return false;
	if (lang == PYTHON && a->kind == STRING && b->kind == STRING)
		return false;
	if ((a->kind == STRING && (a->flags & PREFIX)) ||
	    (b->kind == STRING && (b->flags & TEMPLATE)))
		return false;
	left = a->kind == NUMBER || a->kind == STRING || a->kind == REGEX ||
	       (a->kind == WORD && !sbx_token_keyword(a, lang)) ||
	       (a->kind == OP && (sbx_token_is(a, "]") || (lang == PYTHON && sbx_token_is(a, ")"))));
	right = b->kind == NUMBER || b->kind == STRING || b->kind == REGEX ||
		(b->kind == WORD && !sbx_token_keyword(b, lang));
	return left && right;
}

static bool dunder(const struct token *t)
{
	return t->kind == WORD && t->len > 4 && memcmp(t->text, "__", 2) == 0 &&
	       memcmp(t->text + t->len - 2, "__", 2) == 0;
}

static void python_statement(const struct token *t, struct score *s)
{
	if (sbx_token_is(t, "def") && t[1].kind == WORD && sbx_token_is(t + 2, "("))
		s->points += line_has_colon(t) ? 5 : 0;
	else if (sbx_token_is(t, "class") && t[1].kind == WORD &&
		 (sbx_token_is(t + 2, ":") || (sbx_token_is(t + 2, "(") && line_has_colon(t))))
		s->points += 5;
	else if (sbx_token_is(t, "async") && sbx_token_among(t + 1, " def for with "))
		s->points += 5;
	else if (sbx_token_is(t, "from") && line_find(t, "import"))
		s->points += 6;
	else if (sbx_token_is(t, "import") && t[1].kind == WORD && !(t[1].flags & FIRST) &&
		 !line_find(t, "from") && !line_find(t, "="))
		s->points += 4;
	else if (sbx_token_is(t, "elif") || sbx_token_is(t, "except"))
		s->points += line_has_colon(t) ? 5 : 0;
	else if (sbx_token_is(t, "for") && line_has_colon(t) && t[1].kind == WORD && line_find(t, "in"))
		s->points += 4;
	else if (sbx_token_among(t, " if while with ") && line_has_colon(t))
		s->points += 3;
	else if (sbx_token_among(t, " try else finally ") && sbx_token_is(t + 1, ":"))
		s->points += 4;
	else if (sbx_token_is(t, "pass") && (t[1].flags & FIRST))
		s->points += 3;
	else if (sbx_token_among(t, " raise global nonlocal del ") && t[1].kind == WORD &&
		 !(t[1].flags & FIRST))
		s->points += 3;
	else if (sbx_token_is(t, "assert") && !sbx_token_is(t + 1, "(") && !sbx_token_is(t + 1, "."))
		s->points += 2;
	else if (sbx_token_is(t, "@") && t[1].kind == WORD)
		s->points += 2;
	else if (sbx_token_is(t, "print") && t[1].kind == STRING && !(t[1].flags & FIRST))
		s->points += 6; /* Python 2: its error message helps more than ours */
}

static void python_token(const struct token *t, const struct token *prev, struct score *s)
{
	static const char builtins[] =
		" len range str int float list dict set tuple enumerate zip sorted isinstance "
		"open input sum min max repr type super any all abs round ";

	if (t->kind == STRING)
		s->points += t->flags & (PREFIX | TRIPLE) ? 3 : 0;
	if (sbx_token_is(t, "print") && sbx_token_is(t + 1, "(") && !sbx_token_is(prev, "."))
		capped(s, &s->names, 3, 2);
	else if (t->kind == WORD && sbx_token_is(t + 1, "(") && !sbx_token_is(prev, ".") && sbx_token_among(t, builtins))
		capped(s, &s->names, 3, 1);
	if (sbx_token_among(t, " None True False "))
		capped(s, &s->literals, 3, 2);
	if (sbx_token_is(t, "lambda") && (t[1].kind == WORD || sbx_token_among(t + 1, " : * ")))
		s->points += 3;
	if (sbx_token_among(t, " and or not ") && !sbx_token_is(prev, ".") && t[1].kind != END &&
	    !(t[1].flags & FIRST) && !sbx_token_among(t + 1, " = . , ) : "))
		s->points += 2;
	if (sbx_token_is(t, "self") && sbx_token_is(t + 1, "."))
		capped(s, &s->blocks, 2, 2);
	if (dunder(t))
		s->points += 3;
	if (sbx_token_is(t, "->") || (sbx_token_is(t, ":=") && prev->kind == WORD))
		s->points += 3;
	if (sbx_token_is(t, "//") && prev->kind != OP)
		s->points += 1;
	if (sbx_token_is(t, ":") && (t->flags & SUBSCRIPT))
		capped(s, &s->logic, 2, 2);
	if (sbx_token_is(t, "for") && (t->flags & INNER) && t[1].kind == WORD && prev->kind != END)
		s->points += 3;
	/* what it does not allow */
	if ((sbx_token_is(t, "&") && sbx_token_is(t + 1, "&")) || (sbx_token_is(t, "|") && sbx_token_is(t + 1, "|")) ||
	    (sbx_token_is(t, "==") && sbx_token_is(t + 1, "=")) || (sbx_token_is(t, "=") && sbx_token_is(t + 1, ">")))
		s->points -= 3;
	if (sbx_token_is(prev, ")") && sbx_token_is(t, "{") && !(t->flags & FIRST))
		s->points -= 3;
	if (((sbx_token_is(t, "+") && sbx_token_is(t + 1, "+")) || (sbx_token_is(t, "-") && sbx_token_is(t + 1, "-"))) &&
	    (t[2].flags & FIRST || sbx_token_is(t + 2, ")") || sbx_token_is(t + 2, ";")))
		s->points -= 2;
}

static void node_statement(const struct token *t, struct score *s)
{
	static const char exported[] = " default const let var function class async { * ";

	if (sbx_token_is(t, "export"))
		s->points += sbx_token_among(t + 1, exported) ? 5 : -3;
	else if (sbx_token_is(t, "import")) {
		const struct token *from = line_find(t, "from");

		if (sbx_token_is(t + 1, "(") || sbx_token_is(t + 1, "."))
			s->points += 2;
		else if (sbx_token_is(t + 1, "{") || sbx_token_is(t + 1, "*"))
			s->points += 5;
		else if (from && from[1].kind == STRING)
			s->points += 5;
		else if (t[1].kind == STRING)
			s->points += 4;
		else
			s->points -= 3;
	} else if (sbx_token_among(t, " if while for ") && !sbx_token_is(t + 1, "(") &&
		   !(sbx_token_is(t, "for") && sbx_token_is(t + 1, "await")))
		s->points -= 3;
	else if (sbx_token_among(t, " else try finally ") && sbx_token_is(t + 1, ":"))
		s->points -= 3;
}

static void node_token(const struct token *t, const struct token *prev, struct score *s)
{
	bool member = sbx_token_is(prev, ".");

	if (t->kind == STRING)
		s->points += t->flags & TEMPLATE ? 3 : 0;
	if (t->kind == REGEX)
		s->points += 2;
	if (!member && sbx_token_among(t, " const let var ") &&
	    (t[1].kind == WORD || sbx_token_among(t + 1, " { [ ")) && !(t[1].flags & FIRST))
		s->points += 4;
	if (!member && sbx_token_is(t, "function") && (t[1].kind == WORD || sbx_token_among(t + 1, " ( * ")))
		s->points += 4;
	if (sbx_token_among(t, " => === !== "))
		s->points += 4;
	if (sbx_token_among(t, " && || ?? ?. "))
		capped(s, &s->logic, 1, 1);
	if (sbx_token_is(t, "!") && !sbx_token_ends_operand(prev, NODE))
		s->points += 2;
	if (sbx_token_among(t, " ++ -- ") && (prev->kind == WORD || t[1].kind == WORD) &&
	    t[1].kind != NUMBER &&
	    !(prev->kind == WORD && t[1].kind == WORD && !(t[1].flags & FIRST)))
		s->points += 3;
	if (!member && sbx_token_is(t, "new") && t[1].kind == WORD && !(t[1].flags & FIRST))
		s->points += 3;
	if (!member && sbx_token_among(t, " console JSON ") && sbx_token_is(t + 1, "."))
		s->points += 4;
	if (!member && sbx_token_is(t, "require") && sbx_token_is(t + 1, "(") && t[2].kind == STRING)
		s->points += 4;
	if (sbx_token_is(t, "module") && sbx_token_is(t + 1, ".") && sbx_token_is(t + 2, "exports"))
		s->points += 4;
	if (!member && sbx_token_among(t, " process Math Object Promise document window ") &&
	    sbx_token_is(t + 1, ".") &&
	    sbx_token_among(t + 2, " stdout stdin argv env exit nextTick on floor random max min round PI "
			 "keys values entries "
			 "assign all resolve race querySelector getElementById addEventListener "
			 "location "))
		capped(s, &s->names, 3, 2);
	if (member && sbx_token_among(t, " length push forEach then toString toUpperCase toFixed indexOf "))
		capped(s, &s->names, 3, 1);
	if (sbx_token_among(t, " null undefined true false "))
		capped(s, &s->literals, 1, 1);
	if (!member && sbx_token_among(t, " typeof instanceof ") && (t[1].kind == WORD || sbx_token_is(t + 1, "(")))
		s->points += 3;
	if (sbx_token_is(t, "this") && sbx_token_is(t + 1, "."))
		s->points += 3;
	if (!member && sbx_token_is(t, "throw") && t[1].kind == WORD && !(t[1].flags & FIRST))
		s->points += 3;
	if ((sbx_token_is(t, "catch") && !member && sbx_token_among(t + 1, " ( { ")) ||
	    (sbx_token_among(t, " try finally do ") && sbx_token_is(t + 1, "{")))
		s->points += 3;
	if (sbx_token_is(t, "else") && (sbx_token_is(t + 1, "{") || sbx_token_is(t + 1, "if")))
		s->points += 3;
	if (sbx_token_is(t, "switch") && sbx_token_is(t + 1, "("))
		s->points += 3;
	if (!member && sbx_token_is(t, "for") && sbx_token_is(t + 1, "(") && (t->flags & FIRST))
		s->points += 1;
	if (sbx_token_is(t, "async") && (sbx_token_is(t + 1, "function") || sbx_token_is(t + 1, "(")))
		s->points += 5;
	if (!member && sbx_token_is(t, "class") && t[1].kind == WORD &&
	    (sbx_token_is(t + 2, "{") || sbx_token_is(t + 2, "extends")))
		s->points += 5;
	if (sbx_token_is(prev, ")") && sbx_token_is(t, "{"))
		capped(s, &s->blocks, 3, 3);
	if (sbx_token_is(t, ";") && (t[1].flags & FIRST))
		capped(s, &s->ends, 2, 1);
	if (sbx_token_is(t, "?") && t[1].kind != END)
		s->points += 1;
	/* what it does not allow */
	if ((sbx_token_is(t, "-") && sbx_token_is(t + 1, ">")) || (sbx_token_is(t, ":") && sbx_token_is(t + 1, "=")) ||
	    (sbx_token_is(t, ":") && sbx_token_is(t + 1, ":")))
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
	if (sbx_token_among(t, languages))
		return t[1].kind == WORD && !(t[1].flags & FIRST);
	return sbx_token_among(t, shell) && !sbx_token_among(t + 1, " = ( . , [ : ) ] ; += ") && !(t[1].flags & FIRST);
}

static int weigh(const struct lexer *l)
{
	static const struct token none = { "", 0, END, FIRST };
	struct score s = { 0 };
	size_t i;

	for (i = 0; i < l->n; i++) {
		const struct token *t = &l->tokens[i], *prev = i ? t - 1 : &none;
		bool begins = (t->flags & FIRST) || sbx_token_is(prev, ";");

		if (t->kind == WRONG) {
			s.points -= (int)t->len;
			continue;
		}
		if (begins && foreign(t))
			s.points -= 6;
		if (side_by_side(prev, t, l->lang) && !(sbx_token_is(prev, "print") && t->kind == STRING))
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
	if (l->n && l->tokens[0].kind == OP && sbx_token_among(&l->tokens[0], " < > | % = . , * "))
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
		sbx_lex(&l);
		memset(&tokens[l.n + 1], 0, 3 * sizeof(*tokens));
		score[i] = weigh(&l);
	}
	if (score[0] >= ENOUGH && score[0] > score[1])
		return "python";
	if (score[1] >= ENOUGH && score[1] > score[0])
		return "node";
	return "";
}
