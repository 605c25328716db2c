/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what every unit test includes: cmocka in the order it wants, and a few helpers. */
#ifndef SBX_TESTS_UNIT_H
#define SBX_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
