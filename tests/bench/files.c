/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the stopwatch of plain file work in two folders, slice by slice in turns, so that a busy moment of the machine meets
 * both.
 *
 *   bench-files stream ROUNDS BYTES CHUNK DIR DIR   write a new file, read it, both by CHUNK bytes: MB/s
 *   bench-files names ROUNDS COUNT DIR DIR          create, stat, unlink COUNT files: microseconds for each
 * Prints a line for each round, from the median slice: the figures of the first folder, then those of the second.
 *
 * Pages that the kernel keeps for the file are dropped before it is read: what is measured is the way through the file system, not a
 * read of the page cache.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SLICE_BYTES (8u << 20)
#define SLICE_FILES 20
#define SLICES_MAX 1024

struct folder {
	const char *dir;
	int fd;		/* stream: its open file */
	double us[3];	/* for one file or byte, by phase: the median slice */
	double slices[SLICES_MAX];
};

typedef void (*slice_fn)(struct folder *f, size_t from, size_t n);

static char *buf;
static size_t chunk;

static void die(const char *what)
{
	fprintf(stderr, "bench-files: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static const char *name_of(const struct folder *f, size_t i)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/bench-file-%zu", f->dir, i);
	return path;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* @total in slices, each done in one folder and then in the other; who is first alternates */
static void in_turns(struct folder f[2], size_t phase, size_t total, size_t slice, slice_fn fn)
{
	size_t n = total / slice, s, i;
	double start;

	for (s = 0; s < n && s < SLICES_MAX; s++) {
		for (i = 0; i < 2; i++) {
			struct folder *one = &f[(i + s) % 2];

			start = now_us();
			fn(one, s * slice, slice);
			one->slices[s] = (now_us() - start) / (double)slice;
		}
	}
	for (i = 0; i < 2; i++) {
		qsort(f[i].slices, s, sizeof(double), by_value);
		f[i].us[phase] = f[i].slices[s / 2];
	}
}

static void write_slice(struct folder *f, size_t from, size_t n)
{
	size_t done;

	if (from == 0)
		f->fd = open(name_of(f, 0), O_WRONLY | O_CREAT | O_EXCL, 0644);
	for (done = 0; done < n; done += chunk) {
		if (write(f->fd, buf, chunk) != (ssize_t)chunk)
			die(name_of(f, 0));
	}
}

static void read_slice(struct folder *f, size_t from, size_t n)
{
	size_t done;

	if (from == 0)
		f->fd = open(name_of(f, 0), O_RDONLY);
	for (done = 0; done < n; done += chunk) {
		if (read(f->fd, buf, chunk) != (ssize_t)chunk)
			die(name_of(f, 0));
	}
}

static void forget_pages(struct folder *f)
{
	int fd = open(name_of(f, 0), O_RDONLY);

	if (close(f->fd) < 0 || fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
		die(name_of(f, 0));
	close(fd);
}

static void stream(struct folder f[2], size_t bytes)
{
	size_t i;

	sync(); /* what others left to write must not hold up one of the two */
	in_turns(f, 0, bytes, SLICE_BYTES, write_slice);
	for (i = 0; i < 2; i++)
		forget_pages(&f[i]);
	in_turns(f, 1, bytes, SLICE_BYTES, read_slice);
	for (i = 0; i < 2; i++) {
		close(f[i].fd);
		if (unlink(name_of(&f[i], 0)) < 0)
			die(name_of(&f[i], 0));
	}
}

static void create_slice(struct folder *f, size_t from, size_t n)
{
	size_t i;
	int fd;

	for (i = from; i < from + n; i++) {
		fd = open(name_of(f, i), O_WRONLY | O_CREAT | O_EXCL, 0644);
		if (fd < 0)
			die(name_of(f, i));
		close(fd);
	}
}

static void stat_slice(struct folder *f, size_t from, size_t n)
{
	struct stat st;
	size_t i;

	for (i = from; i < from + n; i++) {
		if (stat(name_of(f, i), &st) < 0)
			die(name_of(f, i));
	}
}

static void unlink_slice(struct folder *f, size_t from, size_t n)
{
	size_t i;

	for (i = from; i < from + n; i++) {
		if (unlink(name_of(f, i)) < 0)
			die(name_of(f, i));
	}
}

static void names(struct folder f[2], size_t count)
{
	in_turns(f, 0, count, SLICE_FILES, create_slice);
	in_turns(f, 1, count, SLICE_FILES, stat_slice);
	in_turns(f, 2, count, SLICE_FILES, unlink_slice);
}

int main(int argc, char **argv)
{
	bool streams = argc == 7 && strcmp(argv[1], "stream") == 0;
	static struct folder f[2];
	long rounds, r;
	size_t total, i, k, phases = streams ? 2 : 3;

	if (!streams && (argc != 6 || strcmp(argv[1], "names") != 0)) {
		fprintf(stderr, "bench-files stream ROUNDS BYTES CHUNK DIR DIR | names ROUNDS COUNT DIR DIR\n");
		return 2;
	}
	rounds = atol(argv[2]);
	total = (size_t)atoll(argv[3]);
	chunk = streams ? (size_t)atoll(argv[4]) : 1;
	buf = malloc(chunk);
	if (!buf)
		die("memory");
	for (i = 0; i < 2; i++)
		f[i].dir = argv[argc - 2 + (int)i];
	memset(buf, 'x', chunk);
	for (r = 0; r < rounds; r++) {
		if (streams)
			stream(f, total);
		else
			names(f, total);
		for (i = 0; i < 2; i++) {
			for (k = 0; k < phases; k++)
				printf("%.2f ", streams ? 1 / f[i].us[k] : f[i].us[k]);
		}
		printf("\n");
		fflush(stdout);
	}
	free(buf);
	return 0;
}
