/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit that uploads are measured against: a bare curl multi client that sends over N
 * connections. No signatures, no checksums (start ossd with --no-auth).
 *
 *   rawput parts URL FILE CONNECTIONS PART           FILE as one object, in parallel parts
 *   rawput files URL COUNT SIZE CONNECTIONS          COUNT objects URL/N of SIZE bytes
 *
 * Prints one JSON line: bytes, seconds, CPU seconds.
 */
#include "tests/bench/bench.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (512 << 10)
#define ETAG_BYTES 64

struct slot {
	CURL *easy;
	long number;
	off_t at, end; /* of the file */
};

struct job {
	CURLM *multi;
	const char *url;
	char upload[256]; /* "": whole objects */
	int fd;           /* what is sent */
	long long size, part;
	long count, next;
	char (*etags)[ETAG_BYTES]; /* of the parts */
};

struct text {
	char data[4096];
	size_t len;
};

static struct job job;

static void check_answer(CURL *easy, CURLcode result)
{
	long status = 0;

	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	if (result == CURLE_OK && status / 100 == 2)
		return;
	fprintf(stderr, "rawput: %s, status %ld\n", curl_easy_strerror(result), status);
	exit(1);
}

static size_t send_some(char *p, size_t size, size_t n, void *user)
{
	struct slot *s = user;
	size_t left = (size_t)(s->end - s->at), want = size * n < left ? size * n : left;
	ssize_t r = pread(job.fd, p, want, s->at);

	if (r < 0)
		return CURL_READFUNC_ABORT;
	s->at += r;
	return (size_t)r;
}

static size_t drop(char *p, size_t size, size_t n, void *user)
{
	(void)p;
	(void)user;
	return size * n;
}

static size_t take_header(char *p, size_t size, size_t n, void *user)
{
	struct slot *s = user;
	const char *etag = memchr(p, '"', size * n);

	if (job.etags && etag && !strncasecmp(p, "ETag:", 5))
		snprintf(job.etags[s->number], ETAG_BYTES, "%.*s",
			 (int)strcspn(etag + 1, "\""), etag + 1);
	return size * n;
}

/* Gives the slot its next transfer; false when there is none. */
static bool start(struct slot *s)
{
	char url[4096];

	if (job.next == job.count)
		return false;
	s->number = job.next++;
	if (job.upload[0]) {
		s->at = s->number * job.part;
		s->end = s->at + job.part < job.size ? s->at + job.part : job.size;
		snprintf(url, sizeof(url), "%s?partNumber=%ld&uploadId=%s", job.url,
			 s->number + 1, job.upload);
	} else {
		s->at = 0;
		s->end = job.size;
		snprintf(url, sizeof(url), "%s/%06ld", job.url, s->number);
	}
	curl_easy_setopt(s->easy, CURLOPT_URL, url);
	curl_easy_setopt(s->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)(s->end - s->at));
	return curl_multi_add_handle(job.multi, s->easy) == CURLM_OK;
}

static void prepare(struct slot *s, struct curl_slist *headers)
{
	s->easy = curl_easy_init();
	curl_easy_setopt(s->easy, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(s->easy, CURLOPT_READFUNCTION, send_some);
	curl_easy_setopt(s->easy, CURLOPT_READDATA, s);
	curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, drop);
	curl_easy_setopt(s->easy, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(s->easy, CURLOPT_HEADERDATA, s);
	curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
	curl_easy_setopt(s->easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)BUFFER_BYTES);
	curl_easy_setopt(s->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, headers);
}

static void send_all(int connections)
{
	struct slot *slots = calloc((size_t)connections, sizeof(*slots));
	/* Without it every PUT would wait for "100 Continue". */
	struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
	int running;

	job.multi = curl_multi_init();
	for (int i = 0; i < connections; i++) {
		prepare(&slots[i], headers);
		start(&slots[i]);
	}
	do {
		CURLMsg *message;
		int left;

		curl_multi_perform(job.multi, &running);
		while ((message = curl_multi_info_read(job.multi, &left))) {
			struct slot *s;

			if (message->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &s);
			check_answer(s->easy, message->data.result);
			curl_multi_remove_handle(job.multi, s->easy);
			running += start(s);
		}
		if (running)
			curl_multi_poll(job.multi, NULL, 0, 1000, NULL);
	} while (running);
	for (int i = 0; i < connections; i++)
		curl_easy_cleanup(slots[i].easy);
	curl_multi_cleanup(job.multi);
	curl_slist_free_all(headers);
	free(slots);
}

/* ---- one object in parts --------------------------------------------------------------- */

static size_t collect(char *p, size_t size, size_t n, void *user)
{
	struct text *text = user;
	size_t room = sizeof(text->data) - 1 - text->len;

	if (size * n > room)
		return 0;
	memcpy(text->data + text->len, p, size * n);
	text->len += size * n;
	return size * n;
}

static void post(const char *url, const char *body, struct text *answer)
{
	CURL *easy = curl_easy_init();

	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
	check_answer(easy, curl_easy_perform(easy));
	curl_easy_cleanup(easy);
}

static void begin_upload(void)
{
	struct text answer = {.len = 0};
	char url[4096], *id;

	snprintf(url, sizeof(url), "%s?uploads", job.url);
	post(url, "", &answer);
	id = strstr(answer.data, "<UploadId>");
	if (!id)
		bench_fail("no upload id");
	id += strlen("<UploadId>");
	snprintf(job.upload, sizeof(job.upload), "%.*s", (int)strcspn(id, "<"), id);
}

static void complete_upload(void)
{
	struct text answer = {.len = 0};
	char url[4096], *body;
	size_t size, at;

	size = (size_t)job.count * (ETAG_BYTES + 80) + 80;
	body = malloc(size);
	if (!body)
		bench_fail("malloc");
	at = (size_t)snprintf(body, size, "<CompleteMultipartUpload>");
	for (long i = 0; i < job.count; i++)
		at += (size_t)snprintf(
			body + at, size - at,
			"<Part><PartNumber>%ld</PartNumber><ETag>\"%s\"</ETag></Part>",
			i + 1, job.etags[i]);
	snprintf(body + at, size - at, "</CompleteMultipartUpload>");
	snprintf(url, sizeof(url), "%s?uploadId=%s", job.url, job.upload);
	post(url, body, &answer);
	free(body);
}

static void send_parts(const char *file, int connections, long long part)
{
	struct stat st;

	job.fd = open(file, O_RDONLY | O_CLOEXEC);
	if (job.fd < 0 || fstat(job.fd, &st) < 0)
		bench_fail(file);
	job.size = st.st_size;
	job.part = part;
	job.count = (long)((job.size + part - 1) / part);
	job.etags = calloc((size_t)job.count, sizeof(*job.etags));
	begin_upload();
	send_all(connections);
	complete_upload();
}

static void send_files(long count, size_t size, int connections)
{
	char *data = bench_noise(size);
	FILE *f = tmpfile();

	if (!f || fwrite(data, 1, size, f) != size || fflush(f) != 0)
		bench_fail("tmpfile");
	free(data);
	job.fd = fileno(f);
	job.size = (long long)size;
	job.count = count;
	send_all(connections);
	fclose(f);
}

int main(int argc, char **argv)
{
	double began;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	began = bench_now();
	if (argc == 6 && !strcmp(argv[1], "parts")) {
		job.url = argv[2];
		send_parts(argv[3], atoi(argv[4]), atoll(argv[5]));
		bench_report(job.size, began);
	} else if (argc == 6 && !strcmp(argv[1], "files")) {
		job.url = argv[2];
		send_files(atol(argv[3]), strtoul(argv[4], NULL, 10), atoi(argv[5]));
		bench_report(job.size * job.count, began);
	} else {
		fprintf(stderr, "usage: see the head of rawput.c\n");
		return 64;
	}
	return 0;
}
