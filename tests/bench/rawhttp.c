/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit that cold reads are measured against: a bare curl multi client that does
 * nothing but fetch over N connections and write to disk. No signatures, no checksums
 * (start ossd with --no-auth).
 *
 *   rawhttp range URL SIZE FILE CONNECTIONS RANGE    one object in ranges, into FILE
 *   rawhttp files LIST DIR CONNECTIONS               each URL of LIST into a file of DIR
 *
 * Prints one JSON line: bytes, seconds, CPU seconds.
 */
#include <curl/curl.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
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
	char **urls; /* files mode */
	size_t url_count, url_next;
	const char *dir;
	long long bytes;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
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

	if (j->urls) {
		if (j->url_next == j->url_count)
			return false;
		snprintf(text, sizeof(text), "%s/%zu", j->dir, j->url_next);
		s->fd = open(text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		s->at = 0;
		curl_easy_setopt(s->easy, CURLOPT_URL, j->urls[j->url_next++]);
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
	return s->fd >= 0 && curl_multi_add_handle(j->multi, s->easy) == CURLM_OK;
}

static void finish(struct job *j, struct slot *s, CURLcode result)
{
	curl_off_t got = 0;
	long status = 0;

	curl_easy_getinfo(s->easy, CURLINFO_SIZE_DOWNLOAD_T, &got);
	curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK || status / 100 != 2) {
		fprintf(stderr, "rawhttp: %s, status %ld\n", curl_easy_strerror(result),
			status);
		exit(1);
	}
	j->bytes += got;
	curl_multi_remove_handle(j->multi, s->easy);
	if (j->urls)
		close(s->fd);
}

static void fetch(struct job *j, int connections)
{
	struct slot *slots = calloc((size_t)connections, sizeof(*slots));
	int running;

	j->multi = curl_multi_init();
	for (int i = 0; i < connections; i++) {
		struct slot *s = &slots[i];

		s->easy = curl_easy_init();
		curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, receive);
		curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
		curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
		curl_easy_setopt(s->easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
		curl_easy_setopt(s->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
		start(j, s);
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

static int read_list(struct job *j, const char *path)
{
	FILE *f = fopen(path, "re");
	char line[4096];

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		char **grown = realloc(j->urls, (j->url_count + 1) * sizeof(char *));

		if (!grown)
			abort();
		j->urls = grown;
		line[strcspn(line, "\n")] = '\0';
		j->urls[j->url_count++] = strdup(line);
	}
	fclose(f);
	return 0;
}

int main(int argc, char **argv)
{
	struct job j = {.out = -1};
	int connections;
	double began;

	if (argc == 7 && !strcmp(argv[1], "range")) {
		j.url = argv[2];
		j.size = atoll(argv[3]);
		j.out = open(argv[4], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		connections = atoi(argv[5]);
		j.range = atoll(argv[6]);
	} else if (argc == 5 && !strcmp(argv[1], "files")) {
		if (read_list(&j, argv[2]) < 0)
			return 1;
		j.dir = argv[3];
		connections = atoi(argv[4]);
	} else {
		fprintf(stderr, "usage: see the head of rawhttp.c\n");
		return 64;
	}
	curl_global_init(CURL_GLOBAL_DEFAULT);
	began = now();
	fetch(&j, connections);
	printf("{\"bytes\":%lld,\"seconds\":%.6f,\"cpu\":%.6f}\n", j.bytes, now() - began,
	       cpu_seconds());
	return 0;
}
