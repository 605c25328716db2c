/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: box.json, what a box is made of.  Numbers over 2^53 are kept as text. */
#include "local/record.h"

#include "base/buf.h"
#include "base/err.h"
#include "limit.h"
#include "local/state.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sbx_record_format(const struct sbx_record *rec, struct sbx_buf *out, struct sbx_err *err)
{
	cJSON *j = cJSON_CreateObject(), *limits = cJSON_AddObjectToObject(j, "limits");
	struct sbx_limits copy = rec->limits;
	char number[32], *text;
	size_t i;
	int r = -ENOMEM;

	cJSON_AddNumberToObject(j, "version", 1);
	cJSON_AddStringToObject(j, "id", rec->id);
	cJSON_AddStringToObject(j, "template", rec->template);
	if (rec->rootfs)
		cJSON_AddStringToObject(j, "rootfs", rec->rootfs);
	if (rec->runtime)
		cJSON_AddStringToObject(j, "runtime", rec->runtime);
	cJSON_AddNumberToObject(j, "network", rec->network);
	cJSON_AddNumberToObject(j, "id_base", rec->id_base);
	if (rec->volume)
		cJSON_AddTrueToObject(j, "volume");
	snprintf(number, sizeof(number), "%lld.%09ld", (long long)rec->created.tv_sec,
		 rec->created.tv_nsec);
	cJSON_AddStringToObject(j, "created", number);
	for (i = 0; i < SBX_LIMITS; i++) {
		snprintf(number, sizeof(number), "%" PRIu64, *sbx_limit_at(&copy, (enum sbx_limit)i));
		cJSON_AddStringToObject(limits, sbx_limit_kinds[i].stored, number);
	}
	text = cJSON_Print(j);
	if (text)
		r = sbx_buf_text(out, text);
	if (r == 0)
		r = sbx_buf_text(out, "\n");
	cJSON_free(text);
	cJSON_Delete(j);
	return r < 0 ? sbx_err_set(err, ENOMEM, "no memory for box.json") : 0;
}

static const char *string_of(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

	return cJSON_IsString(v) ? v->valuestring : NULL;
}

static double number_of(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

	return cJSON_IsNumber(v) ? v->valuedouble : -1;
}

static int take(const cJSON *j, struct sbx_record *ret, struct sbx_err *err)
{
	const cJSON *limits = cJSON_GetObjectItemCaseSensitive(j, "limits");
	const char *id = string_of(j, "id"), *template = string_of(j, "template");
	const char *created = string_of(j, "created"), *rootfs = string_of(j, "rootfs");
	const char *runtime = string_of(j, "runtime");
	double network = number_of(j, "network"), base = number_of(j, "id_base");
	long long sec;
	long nsec;
	size_t i;

	if (!id || strlen(id) != 8 || strspn(id, "0123456789abcdef") != 8)
		return sbx_err_set(err, EINVAL, "id is missing or damaged");
	if (!template || strlen(template) >= sizeof(ret->template))
		return sbx_err_set(err, EINVAL, "template is missing or damaged");
	if (network < 0 || network > SBX_NET_HOST)
		return sbx_err_set(err, EINVAL, "network is missing or damaged");
	if (base < 0 || base > 0xffff0000u)
		return sbx_err_set(err, EINVAL, "id_base is missing or damaged");
	if (!created || sscanf(created, "%lld.%ld", &sec, &nsec) != 2)
		return sbx_err_set(err, EINVAL, "created is missing or damaged");
	strcpy(ret->id, id);
	strcpy(ret->template, template);
	ret->network = (enum sbx_network)(int)network;
	ret->id_base = (uint32_t)base;
	ret->volume = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "volume"));
	ret->created.tv_sec = sec;
	ret->created.tv_nsec = nsec;
	for (i = 0; i < SBX_LIMITS; i++) {
		const char *text = string_of(limits, sbx_limit_kinds[i].stored);

		if (!text)
			return sbx_err_set(err, EINVAL, "limits.%s is missing", sbx_limit_kinds[i].stored);
		*sbx_limit_at(&ret->limits, (enum sbx_limit)i) = strtoull(text, NULL, 10);
	}
	ret->rootfs = rootfs ? strdup(rootfs) : NULL;
	ret->runtime = runtime ? strdup(runtime) : NULL;
	if ((rootfs && !ret->rootfs) || (runtime && !ret->runtime))
		return sbx_err_set(err, ENOMEM, "no memory");
	return 0;
}

int sbx_record_parse(const char *json, struct sbx_record *ret, struct sbx_err *err)
{
	cJSON *j = cJSON_Parse(json);
	struct sbx_record rec;
	int r;

	memset(&rec, 0, sizeof(rec));
	r = cJSON_IsObject(j) ? take(j, &rec, err) : sbx_err_set(err, EINVAL, "not JSON");
	cJSON_Delete(j);
	if (r == 0)
		*ret = rec;
	else
		sbx_record_done(&rec);
	return r;
}
