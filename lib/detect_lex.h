/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what detect_lex.c (cuts a text into tokens) and detect.c (weighs them) share.  Nobody else includes it.
 */
#ifndef SBX_DETECT_LEX_H
#define SBX_DETECT_LEX_H

#include <stdbool.h>
#include <stddef.h>

#define TOKENS_MAX 16384
#define DEPTH_MAX 64

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

/* sbx_lex - cuts the text between @l->p and @l->end into @l->tokens (room for TOKENS_MAX), with an END behind the last */
void sbx_lex(struct lexer *l);
/* sbx_token_is - is it code that reads @text? */
bool sbx_token_is(const struct token *t, const char *text);
/* sbx_token_among - is it one of @list: words between blanks, " a b c "? */
bool sbx_token_among(const struct token *t, const char *list);
/* sbx_token_keyword - is it a word that the language keeps for itself? */
bool sbx_token_keyword(const struct token *t, enum lang lang);
/* sbx_token_ends_operand - may an operator follow, or a regular expression not begin, behind @t? */
bool sbx_token_ends_operand(const struct token *t, enum lang lang);

#endif
