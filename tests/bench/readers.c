/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: many readers that wait: N threads open FILE, read it to its end, and close it.
 *
 *   bench-readers N FILE     prints "waiting" when all of them are in open(), or have come back
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *path;
static atomic_long entered, failed;

static void *reader(void *data)
{
	char buf[4096];
	ssize_t n;
	int fd;

	(void)data;
	atomic_fetch_add(&entered, 1);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		fprintf(stderr, "bench-readers: %s: %s\n", path, strerror(errno));
		atomic_fetch_add(&failed, 1);
		return NULL;
	}
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		;
	if (n < 0)
		atomic_fetch_add(&failed, 1);
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	long n = argc == 3 ? atol(argv[1]) : 0, i;
	struct rlimit files = { 16384, 16384 };
	pthread_t *threads = calloc((size_t)n + 1, sizeof(*threads));
	pthread_attr_t small;

	if (n < 1 || !threads) {
		fprintf(stderr, "bench-readers N FILE\n");
		return 2;
	}
	path = argv[2];
	setrlimit(RLIMIT_NOFILE, &files);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 128 << 10);
	for (i = 0; i < n; i++) {
		if (pthread_create(&threads[i], &small, reader, NULL) != 0) {
			fprintf(stderr, "bench-readers: %ld threads are too many here\n", n);
			return 1;
		}
	}
	while (atomic_load(&entered) < n)
		usleep(1000);
	usleep(200000); /* from there into the kernel */
	puts("waiting");
	fflush(stdout);
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	return atomic_load(&failed) != 0;
}
