/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit that cold reads are measured against: a bare curl multi client that does
 * nothing but fetch over N connections and write to disk. No signatures, no checksums
 * (start ossd with --no-auth).
 *
 *   rawhttp range URL SIZE FILE CONNECTIONS RANGE    one object in ranges, into FILE
 *   rawhttp files LIST DIR CONNECTIONS               each URL of LIST into a file of DIR
 *   rawhttp list URL PAGES                           pages of 1000 keys, one after the other
 *
 * Prints one JSON line: bytes (list: keys), seconds, CPU seconds.
 */
#include "tests/bench/bench.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (512 << 10)

struct slot {
	CURL *easy;
	int fd;
	off_t at;
};

struct job {
	CURLM *multi;
	const char *url; /* range mode */
	long long size, range, next;
	int out;
	struct bench_lines urls; /* files mode */
	long url_next;
	const char *dir;
	long long bytes;
};

static void check_answer(CURL *easy, CURLcode result)
{
	long status = 0;

	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	if (result == CURLE_OK && status / 100 == 2)
		return;
	fprintf(stderr, "rawhttp: %s, status %ld\n", curl_easy_strerror(result), status);
	exit(1);
}

static size_t receive(char *p, size_t size, size_t n, void *user)
{
	struct slot *s = user;
	ssize_t r = pwrite(s->fd, p, size * n, s->at);

	if (r > 0)
		s->at += r;
	return r < 0 ? 0 : (size_t)r;
}

/* Gives the slot its next transfer; false when there is none. */
static bool start(struct job *j, struct slot *s)
{
	char text[4096];

	if (j->urls.items) {
		if (j->url_next == j->urls.count)
			return false;
		snprintf(text, sizeof(text), "%s/%ld", j->dir, j->url_next);
		s->fd = open(text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		s->at = 0;
		curl_easy_setopt(s->easy, CURLOPT_URL, j->urls.items[j->url_next++]);
	} else {
		long long last = j->next + j->range - 1;

		if (j->next >= j->size)
			return false;
		if (last >= j->size)
			last = j->size - 1;
		snprintf(text, sizeof(text), "%lld-%lld", j->next, last);
		s->fd = j->out;
		s->at = j->next;
		j->next = last + 1;
		curl_easy_setopt(s->easy, CURLOPT_URL, j->url);
		curl_easy_setopt(s->easy, CURLOPT_RANGE, text);
	}
	if (s->fd < 0)
		bench_fail(text);
	return curl_multi_add_handle(j->multi, s->easy) == CURLM_OK;
}

static void finish(struct job *j, struct slot *s, CURLcode result)
{
	curl_off_t got = 0;

	check_answer(s->easy, result);
	curl_easy_getinfo(s->easy, CURLINFO_SIZE_DOWNLOAD_T, &got);
	j->bytes += got;
	curl_multi_remove_handle(j->multi, s->easy);
	if (j->urls.items)
		close(s->fd);
}

static void prepare(struct slot *s)
{
	s->easy = curl_easy_init();
	curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, receive);
	curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
	curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
	curl_easy_setopt(s->easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
	curl_easy_setopt(s->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
}

static void fetch(struct job *j, int connections)
{
	struct slot *slots = calloc((size_t)connections, sizeof(*slots));
	int running;

	j->multi = curl_multi_init();
	for (int i = 0; i < connections; i++) {
		prepare(&slots[i]);
		start(j, &slots[i]);
	}
	do {
		CURLMsg *message;
		int left;

		curl_multi_perform(j->multi, &running);
		while ((message = curl_multi_info_read(j->multi, &left))) {
			struct slot *s;

			if (message->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &s);
			finish(j, s, message->data.result);
			running += start(j, s);
		}
		if (running)
			curl_multi_poll(j->multi, NULL, 0, 1000, NULL);
	} while (running);
	for (int i = 0; i < connections; i++)
		curl_easy_cleanup(slots[i].easy);
	curl_multi_cleanup(j->multi);
	free(slots);
}

/* ---- listing --------------------------------------------------------------------------- */

struct page {
	char *text;
	size_t len, size;
};

static size_t collect(char *p, size_t size, size_t n, void *user)
{
	struct page *page = user;

	n *= size;
	if (page->len + n + 1 > page->size) {
		page->size = 2 * (page->len + n + 1);
		page->text = realloc(page->text, page->size);
		if (!page->text)
			bench_fail("realloc");
	}
	memcpy(page->text + page->len, p, n);
	page->len += n;
	page->text[page->len] = '\0';
	return n;
}

/* Counts the keys; the last one into `last`. */
static long long read_page(const struct page *page, char *last, size_t size)
{
	long long count = 0;

	for (const char *at = page->text; at && (at = strstr(at, "<Key>")); count++) {
		at += 5;
		snprintf(last, size, "%.*s", (int)strcspn(at, "<"), at);
	}
	return count;
}

/* As a client without any parallelism must: each page asks for what follows the last. */
static long long list(const char *url, long pages)
{
	CURL *easy = curl_easy_init();
	struct page page = {0};
	char last[1100] = "", target[4096];
	long long total = 0, got = 1;

	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, &page);
	for (long i = 0; i < pages && got > 0; i++) {
		char *escaped = curl_easy_escape(easy, last, 0);

		snprintf(target, sizeof(target),
			 "%s?list-type=2&max-keys=1000&start-after=%s", url, escaped);
		curl_free(escaped);
		page.len = 0;
		curl_easy_setopt(easy, CURLOPT_URL, target);
		check_answer(easy, curl_easy_perform(easy));
		got = read_page(&page, last, sizeof(last));
		total += got;
	}
	curl_easy_cleanup(easy);
	free(page.text);
	return total;
}

int main(int argc, char **argv)
{
	struct job j = {.out = -1};
	double began;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	began = bench_now();
	if (argc == 7 && !strcmp(argv[1], "range")) {
		j.url = argv[2];
		j.size = atoll(argv[3]);
		j.out = open(argv[4], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		j.range = atoll(argv[6]);
		fetch(&j, atoi(argv[5]));
	} else if (argc == 5 && !strcmp(argv[1], "files")) {
		bench_read_lines(&j.urls, argv[2]);
		j.dir = argv[3];
		fetch(&j, atoi(argv[4]));
	} else if (argc == 4 && !strcmp(argv[1], "list")) {
		j.bytes = list(argv[2], atol(argv[3]));
	} else {
		fprintf(stderr, "usage: see the head of rawhttp.c\n");
		return 64;
	}
	bench_report(j.bytes, began);
	return 0;
}
