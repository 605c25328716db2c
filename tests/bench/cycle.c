/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the stopwatch of one-program cycles.  Each subject is a way to run a program and to take what it gives; one of each is
 * done in turn, so that a busy moment of the machine meets all of them.
 *
 *   bench-cycle BLOCKS COUNT SUBJECT... [:: SUBJECT...]...
 *   a subject is   run EXPECTED FILE TEXT RESULT   write TEXT to FILE, then read RESULT to its end
 *            or    spawn EXPECTED DIR PROGRAM ARG...   start it in DIR, read its stdout to the end, wait
 * EXPECTED is what must be read.  Prints a line for each block: the median of each subject, in microseconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SUBJECTS_MAX 8
#define OUTPUT_MAX 4096

extern char **environ;

struct subject {
	char **argv; /* from "run" or "spawn" on, NULL at the end */
	double *us;  /* of this block */
};

static void die(const char *what)
{
	fprintf(stderr, "bench-cycle: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void read_all(int fd, const char *name, char *out)
{
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, out + len, OUTPUT_MAX - 1 - len)) != 0) {
		if (n < 0)
			die(name);
		len += (size_t)n;
	}
	out[len] = '\0';
	close(fd);
}

static void run(char **argv, char *out)
{
	const char *file = argv[2], *text = argv[3], *result = argv[4];
	size_t len = strlen(text);
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, len) != (ssize_t)len || close(fd) < 0)
		die(file);
	fd = open(result, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(result);
	read_all(fd, result, out);
}

static void spawn(char **argv, char *out)
{
	posix_spawn_file_actions_t actions;
	int fds[2], status, e;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		die("pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addchdir_np(&actions, argv[2]);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	e = posix_spawnp(&pid, argv[3], &actions, NULL, argv + 3, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	if (e) {
		errno = e;
		die(argv[3]);
	}
	read_all(fds[0], argv[3], out);
	if (waitpid(pid, &status, 0) != pid)
		die("wait");
	if (status != 0) {
		fprintf(stderr, "bench-cycle: %s ends with status %#x\n", argv[3], (unsigned int)status);
		exit(1);
	}
}

static double once(const struct subject *s)
{
	char out[OUTPUT_MAX];
	double from = now_us(), us;

	if (strcmp(s->argv[0], "run") == 0)
		run(s->argv, out);
	else
		spawn(s->argv, out);
	us = now_us() - from;
	if (strcmp(out, s->argv[1]) != 0) {
		fprintf(stderr, "bench-cycle: %s %s gives '%s', not '%s'\n", s->argv[2], s->argv[3], out, s->argv[1]);
		exit(1);
	}
	return us;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static size_t parse(char **argv, struct subject *s)
{
	size_t n = 0;
	bool fresh = true;

	for (; *argv; argv++) {
		if (strcmp(*argv, "::") == 0) {
			*argv = NULL;
			fresh = true;
		} else if (fresh && n < SUBJECTS_MAX) {
			s[n++].argv = argv;
			fresh = false;
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	struct subject s[SUBJECTS_MAX] = { 0 };
	size_t n, i, k, count;
	long blocks, b;

	if (argc < 7) {
		fprintf(stderr, "bench-cycle BLOCKS COUNT SUBJECT [:: SUBJECT]...\n");
		return 2;
	}
	blocks = atol(argv[1]);
	count = (size_t)atol(argv[2]);
	n = parse(argv + 3, s);
	for (i = 0; i < n; i++) {
		s[i].us = calloc(count, sizeof(double));
		if (!s[i].us)
			die("memory");
		for (k = 0; k < 3; k++) /* the first ones fill caches */
			once(&s[i]);
	}
	for (b = 0; b < blocks; b++) {
		for (k = 0; k < count; k++) {
			for (i = 0; i < n; i++)
				s[i].us[k] = once(&s[i]);
		}
		for (i = 0; i < n; i++) {
			qsort(s[i].us, count, sizeof(double), by_value);
			printf("%.1f%c", s[i].us[count / 2], i + 1 < n ? ' ' : '\n');
		}
		fflush(stdout);
	}
	for (i = 0; i < n; i++)
		free(s[i].us);
	return 0;
}
