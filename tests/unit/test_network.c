/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/local/network.c and addresses.c that need no container. */
#include "unit.h"

#include "base/err.h"
#include "local/addresses.h"
#include "local/network.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOUR "nameserver 169.254.1.1\n"
#define SIX "nameserver fd53:6278:6673::53\n"
#define SLIRP "nameserver 10.0.2.3\n"

static void resolv_conf_names_what_a_box_can_reach(void **state)
{
	static const struct {
		const char *tool, *host, *want;
	} cases[] = {
		{ "/usr/bin/pasta", "nameserver 192.0.2.1\n", FOUR },
		/* a resolver on the host's loopback is never handed on as it is */
		{ "/usr/bin/pasta", "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan example.org\n",
		  FOUR "options edns0 trust-ad\nsearch lan example.org\n" },
		{ "/usr/bin/pasta", "nameserver 2001:db8::1\n", SIX },
		{ "/usr/bin/pasta", "nameserver\t2001:db8::1\n  nameserver 192.0.2.1\n", SIX FOUR },
		{ "/usr/bin/pasta", "nameserver 192.0.2.1\nnameserver ::1", FOUR SIX },
		{ "/usr/bin/pasta.avx2", "# nameserver ::1\n;\ndomain lan", FOUR "domain lan\n" },
		{ "pasta", "", FOUR },
		{ "pasta", NULL, FOUR },
		{ "pasta", "nameservers ::1\nsearching x\nsortlist 1.2.3.4\n", FOUR },
		{ "/usr/bin/slirp4netns", "nameserver ::1\nnameserver 127.0.0.1\nsearch a\n", SLIRP "search a\n" },
		/* a folder's name decides nothing */
		{ "/opt/pasta/bin/slirp4netns", "nameserver 192.0.2.1\n", SLIRP },
	};
	char text[256];
	size_t i, n;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		n = sbx_net_resolv(cases[i].tool, cases[i].host, text, sizeof(text));
		assert_string_equal(text, cases[i].want);
		assert_int_equal(n, strlen(text));
	}
	/* what does not fit is left out by whole lines */
	n = sbx_net_resolv("pasta", "search 0123456789 0123456789\n", text, sizeof(FOUR) + 10);
	assert_string_equal(text, FOUR);
	assert_int_equal(n, strlen(FOUR));
	n = sbx_net_resolv("pasta", "search 0123456789 0123456789\nsearch a\n", text, sizeof(FOUR) + 10);
	assert_string_equal(text, FOUR);
	n = sbx_net_resolv("pasta", "search 0\n", text, strlen(FOUR) + strlen("search 0\n") + 1);
	assert_string_equal(text, FOUR "search 0\n");
	assert_int_equal(n, strlen(text));
}

static void put(const char *dir, const char *name, int mode)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	close(fd);
}

static void the_tool_is_found_in_path(void **state)
{
	char dir[] = "/tmp/sbx-net-XXXXXX", path[PATH_MAX], want[512], cmd[128];
	struct sbx_err err = SBX_ERR_INIT;
	char *old = strdup(getenv("PATH") ? getenv("PATH") : "");
	int r;

	(void)state;
	assert_non_null(mkdtemp(dir));
	setenv("PATH", dir, 1);
	put(dir, "slirp4netns", 0755);
	snprintf(want, sizeof(want), "%s/slirp4netns", dir);
	r = sbx_net_tool("slirp4netns", path, &err);
	if (r == 0)
		assert_string_equal(path, want);
	else /* of the device, not of the tool */
		assert_non_null(strstr(err.text, "/dev/net/tun"));
	put(dir, "pasta", 0644); /* no program */
	r = sbx_net_tool("pasta", path, &err);
	assert_true(r != 0 || strncmp(path, dir, strlen(dir)) != 0);
	snprintf(want, sizeof(want), "%s/pasta", dir);
	assert_int_equal(chmod(want, 0755), 0);
	r = sbx_net_tool(NULL, path, &err);
	if (r == 0) /* pasta is the first choice */
		assert_string_equal(path, want);
	assert_int_equal(sbx_net_tool("/nonexistent/slirp4netns", path, &err), -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "needs '/nonexistent/slirp4netns' (network_tool)"));
	assert_int_equal(sbx_net_tool("/bin/sh", path, &err), -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "neither pasta nor slirp4netns"));
	setenv("PATH", old, 1);
	free(old);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	assert_int_equal(system(cmd), 0);
}

static bool has(const struct sbx_addresses *a, const char *word)
{
	size_t i;

	for (i = 0; i < a->n; i++) {
		if (strcmp(a->list[i], word) == 0)
			return true;
	}
	return false;
}

static void the_hosts_own_addresses_are_unreachable(void **state)
{
	struct sbx_addresses a = { 0 };
	size_t i;

	(void)state;
	assert_int_equal(sbx_addresses_add(&a, "first %d", 1), 0);
	assert_int_equal(sbx_addresses_unreachable(&a), 0);
	assert_string_equal(a.list[0], "first 1");
	assert_null(a.list[a.n]);
	assert_true(has(&a, "-127.0.0.0/8") && has(&a, "-::1/128") && has(&a, "-169.254.0.0/16"));
	assert_true(has(&a, "-127.0.0.1/32")); /* from the interfaces: that of lo */
	for (i = 1; i < a.n; i++)
		assert_true(a.list[i][0] == '-' && strchr(a.list[i], '/'));
	for (i = 0; i < 1000; i++)
		assert_int_equal(sbx_addresses_add(&a, "%zu", i), 0);
	assert_string_equal(a.list[a.n - 1], "999");
	assert_null(a.list[a.n]);
	sbx_addresses_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resolv_conf_names_what_a_box_can_reach),
		cmocka_unit_test(the_tool_is_found_in_path),
		cmocka_unit_test(the_hosts_own_addresses_are_unreachable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
