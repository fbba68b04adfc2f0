/* SPDX-License-Identifier: Apache-2.0 */
/* Code from directories and from a real git server on a port of its own. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "runner/code.h"
#include "runner/proc.h"

static char top[64];
static pid_t server;
static char base_url[64];

static const char *sub(const char *name)
{
	static char path[16][PATH_MAX];
	static int turn;
	char *p = path[turn++ % 16];

	snprintf(p, PATH_MAX, "%s/%s", top, name);
	return p;
}

/* Runs with the temporary folder as current directory and no git configuration. */
static void sh(const char *text)
{
	struct buf b = BUF_INIT;
	const char *const env[] = {"PATH=/usr/bin:/bin",      "HOME=/nonexistent",
				   "GIT_CONFIG_NOSYSTEM=1",   "GIT_AUTHOR_NAME=t",
				   "GIT_AUTHOR_EMAIL=t@t",    "GIT_COMMITTER_NAME=t",
				   "GIT_COMMITTER_EMAIL=t@t", NULL};
	char all[8192];
	const char *const argv[] = {"/bin/sh", "-ec", all, NULL};
	const struct proc_options o = {.argv = argv, .env = env, .in = -1};
	int status = -1;

	snprintf(all, sizeof(all), "cd %s; %s", top, text);
	assert_int_equal(proc_run(&o, &b, 30000, &status), 0);
	if (status)
		fail_msg("%s: %s", text, b.data ? b.data : "");
	buf_fini(&b);
}

static char *content(const char *name)
{
	static char text[4096];
	struct buf b = BUF_INIT;

	text[0] = '\0';
	if (!io_read_file(AT_FDCWD, sub(name), sizeof(text), &b) && b.data)
		snprintf(text, sizeof(text), "%s", b.data);
	buf_fini(&b);
	return text;
}

static void start_server(void)
{
	const char *const argv[] = {"/usr/bin/python3", "tests/runner/git_server.py", top,
				    NULL};
	int out[2], in[2];
	char port[16] = "";

	assert_int_equal(pipe2(out, O_CLOEXEC) | pipe2(in, O_CLOEXEC), 0);
	{
		const struct proc_options o = {
			.argv = argv, .in = in[0], .out = out[1], .err = STDERR_FILENO};

		assert_int_equal(proc_spawn(&o, &server), 0);
	}
	close(out[1]);
	close(in[0]); /* in[1] stays open as long as we live */
	for (size_t n = 0; !strchr(port, '\n') && n < sizeof(port) - 1; n++)
		assert_int_equal(read(out[0], port + n, 1), 1);
	close(out[0]);
	snprintf(base_url, sizeof(base_url), "http://127.0.0.1:%d", atoi(port));
}

static int setup(void **state)
{
	(void)state;
	snprintf(top, sizeof(top), "/tmp/sluice-code.XXXXXX");
	if (!mkdtemp(top))
		return -1;
	sh("git init -q -b main work; cd work; mkdir -p a/b; echo one >a/b/f; echo run "
	   ">run;"
	   "chmod +x run; ln -s a/b/f link; ln -s ../../run a/b/up; : >empty;"
	   "git add .; git commit -qm one; git tag v1;"
	   "echo two >a/b/f; git commit -qam two; git checkout -qb side HEAD~1;"
	   "echo side >side; git add .; git commit -qm side; git checkout -q main; cd ..;"
	   "git clone -q --bare work good.git");
	start_server();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (server)
		proc_end(server, 2000);
	return io_remove_tree(AT_FDCWD, top);
}

static char commit[CODE_COMMIT_SIZE];
static struct why why;

static struct code_source git(const char *repository)
{
	static char url[4][200];
	static int turn;
	char *u = url[turn++ % 4];

	snprintf(u, 200, "%s/%s", base_url, repository);
	return (struct code_source){.git_url = u};
}

/* Into a fresh target "t". */
static int fetch(const struct code_source *s)
{
	io_remove_tree(AT_FDCWD, sub("t")) ? fail() : (void)0;
	strcpy(commit, "untouched");
	why.text[0] = '\0';
	return code_fetch(s, sub("t"), commit, &why);
}

static void assert_refused(const struct code_source *s, const char *word)
{
	assert_true(fetch(s) < 0);
	assert_string_equal(commit, "untouched");
	if (!strstr(why.text, word))
		fail_msg("expected \"%s\" in: %s", word, why.text);
	/* Empty or absent, and nothing beside it. */
	sh("test -z \"$(ls -A t 2>/dev/null)\"; test -z \"$(ls -d t.git-* "
	   "2>/dev/null)\"");
}

/* ---- git --------------------------------------------------------------------------------- */

static void test_default_branch_is_checked_out(void **state)
{
	struct code_source s = git("good.git");
	struct stat st;

	(void)state;
	if (fetch(&s))
		fail_msg("%s", why.text);
	assert_string_equal(content("t/a/b/f"), "two\n");
	assert_string_equal(content("t/link"), "two\n");
	assert_string_equal(content("t/a/b/up"), "run\n");
	assert_int_equal(stat(sub("t/run"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0755);
	assert_int_equal(stat(sub("t/empty"), &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(st.st_mode & 0777, 0644);
	assert_int_equal(access(sub("t/.git"), F_OK), -1);
	sh("git --git-dir good.git rev-parse main | tr -d '\\n' >want; test -z \"$(ls -d "
	   "t.git-* 2>/dev/null)\"");
	assert_string_equal(commit, content("want"));
}

static void test_branch_tag_and_commit_can_be_chosen(void **state)
{
	struct code_source s = git("good.git");
	char id[16];

	(void)state;
	s.branch = "side";
	assert_int_equal(fetch(&s), 0);
	assert_string_equal(content("t/side"), "side\n");
	s.branch = "v1";
	assert_int_equal(fetch(&s), 0);
	assert_string_equal(content("t/a/b/f"), "one\n");
	s.branch = NULL;
	sh("git --git-dir good.git rev-parse v1 | cut -c1-10 | tr -d '\\n' >want");
	snprintf(id, sizeof(id), "%.10s", content("want"));
	s.commit = id;
	assert_int_equal(fetch(&s), 0);
	assert_string_equal(content("t/a/b/f"), "one\n");
	s.branch = "side";
	assert_int_equal(fetch(&s), 0);
}

static void test_missing_branch_commit_or_repository_is_named(void **state)
{
	struct code_source s = git("good.git");

	(void)state;
	s.branch = "nope";
	assert_refused(&s, "no branch or tag \"nope\"");
	s.branch = NULL;
	s.commit = "0123456789";
	assert_refused(&s, "no commit 0123456789 on any branch");
	s = git("nothing.git");
	assert_refused(&s, "nothing.git");
	sh("git init -q --bare hollow.git");
	s = git("hollow.git");
	assert_refused(&s, "hollow.git");
	s.git_url = "http://127.0.0.1:1/x.git";
	assert_refused(&s, "cannot reach http://127.0.0.1:1/x.git");
}

static void test_credentials_are_used_and_never_shown(void **state)
{
	struct code_source s = git("auth/good.git");

	(void)state;
	assert_refused(&s, "wants a user and password");
	s.user = "who";
	s.password = "s3cret";
	assert_int_equal(fetch(&s), 0);
	sh("! grep -r s3cret t");
	s.password = "wr0ng-one";
	assert_refused(&s, "refuses the user, password or token");
	assert_null(strstr(why.text, "wr0ng-one"));
	s.user = NULL;
	s.password = "t0ken";
	assert_int_equal(fetch(&s), 0);
}

static void test_redirects_are_not_followed(void **state)
{
	struct code_source s = git("elsewhere/good.git");

	(void)state;
	assert_refused(&s, "redirect from '127.0.0.1' to 'localhost'");
}

static void test_users_configuration_does_not_count(void **state)
{
	struct code_source s = git("good.git");
	char *home = strdup(getenv("HOME"));

	(void)state;
	/* It would send the request to where nobody listens. */
	sh("mkdir -p home; git config -f home/.gitconfig "
	   "url.http://127.0.0.1:1/.insteadOf "
	   "http://127.0.0.1");
	setenv("HOME", sub("home"), 1);
	assert_int_equal(fetch(&s), 0);
	setenv("HOME", home, 1);
	free(home);
}

/* evil NAME TREE: a repository whose newest commit has a tree that git itself would refuse
 * to write. TREE is made of T(entry...), D(name, entry...), F(name, text), L(name, to). */
#define EVIL                                                                             \
	"evil() { git init -q --bare $1; export GIT_DIR=$1;"                             \
	"python3 -c 'import sys,subprocess as s\n"                                       \
	"def obj(kind,data): return s.run([\"git\",\"hash-object\",\"-w\",\"-t\",kind,"  \
	"\"--literally\",\"--stdin\"],input=data,stdout=s.PIPE,check=True)"              \
	".stdout.strip().decode()\n"                                                     \
	"def T(*e): return obj(\"tree\",b\"\".join(m.encode()+b\" "                      \
	"\"+n.encode()+b\"\\0\"+"                                                        \
	"bytes.fromhex(o) for m,n,o in e))\n"                                            \
	"def F(n,t): return (\"100644\",n,obj(\"blob\",t.encode()))\n"                   \
	"def L(n,t): return (\"120000\",n,obj(\"blob\",t.encode()))\n"                   \
	"def D(n,*e): return (\"40000\",n,T(*e))\n"                                      \
	"print(eval(sys.argv[1]))' \"$2\" >tree;"                                        \
	"git update-ref refs/heads/main $(git commit-tree -m evil $(cat tree));"         \
	"git symbolic-ref HEAD refs/heads/main; unset GIT_DIR; };"

static void assert_evil(const char *tree, const char *word)
{
	static int number;
	char command[4096], name[32];
	struct code_source s;

	snprintf(name, sizeof(name), "evil%d.git", number++);
	snprintf(command, sizeof(command), EVIL "evil %s '%s'", name, tree);
	sh("echo untouched >outside; mkdir -p outdir");
	sh(command);
	s = git(name);
	assert_refused(&s, word);
	assert_string_equal(content("outside"), "untouched\n");
	sh("test -z \"$(ls -A outdir)\"");
}

static void test_evil_trees_write_nothing_outside(void **state)
{
	char out[400];

	(void)state;
	/* Names that git itself never writes. */
	assert_evil("T(D(\".git\",D(\"hooks\",F(\"post-checkout\",\"#!/bin/sh\"))))",
		    "has a file called");
	assert_evil("T(D(\".GIT\",F(\"config\",\"x\")))", "has a file called");
	assert_evil("T(D(\"..\",F(\"outside\",\"x\")))", "has a file called");
	assert_evil("T(F(\"../outside\",\"x\"))", "has a file called");
	/* Links out, and writing through one. */
	assert_evil("T(L(\"a\",\"/etc\"))", "leads out of the code");
	assert_evil("T(L(\"a\",\"../outside\"))", "leads out of the code");
	assert_evil("T(D(\"d\",L(\"a\",\"../../x\")))", "leads out of the code");
	/* Each inside by its text, together not. */
	assert_evil("T(D(\"a\",D(\"b\",L(\"top\",\"../..\"))),L(\"z\",\"a/b/top/../"
		    "outside\"))",
		    "leads out of the code");
	snprintf(out, sizeof(out), "T(L(\"a\",\"%s/outdir\"),D(\"a\",F(\"x\",\"x\")))",
		 top);
	assert_evil(out, "File exists");
}

static void test_submodules_stay_empty_and_filters_do_not_run(void **state)
{
	struct code_source s;

	(void)state;
	sh("git init -q -b main sub; cd sub; "
	   "git update-index --add --cacheinfo "
	   "160000,0123456789012345678901234567890123456789,module;"
	   "printf '[submodule \"module\"]\\n path = module\\n url = file:///etc\\n' "
	   ">.gitmodules; printf '* filter=evil text eol=crlf ident\\n' >.gitattributes;"
	   "printf 'a $Id$\\nb\\n' >f; git -c core.autocrlf=false add .gitmodules "
	   ".gitattributes f; git commit -qm x; cd ..; git clone -q --bare sub sub.git");
	s = git("sub.git");
	if (fetch(&s))
		fail_msg("%s", why.text);
	sh("test -d t/module; test -z \"$(ls -A t/module)\"");
	assert_string_equal(content("t/f"), "a $Id$\nb\n");
}

static void test_code_that_is_too_large_is_refused(void **state)
{
	struct code_source s;

	(void)state;
	sh("git init -q -b main big; cd big; head -c 3000000 /dev/zero >zeros; git add .;"
	   "git commit -qm x; cd ..; git clone -q --bare big big.git");
	s = git("big.git");
	s.size_max = 1 << 20; /* compressed it is far smaller */
	assert_refused(&s, "larger than 1.0 MiB");
	sh("cd big; head -c 3000000 /dev/urandom >random; git add .; git commit -qm y;"
	   "git push -q ../big.git main");
	assert_refused(&s, "larger than 1.0 MiB");
	s.size_max = 8 << 20;
	if (fetch(&s))
		fail_msg("%s", why.text);
}

/* ---- addresses --------------------------------------------------------------------------- */

static void test_other_addresses_are_refused_with_advice(void **state)
{
	static const struct {
		const char *url, *word;
	} bad[] = {{"ssh://git@example.com/x.git", "ssh is not supported"},
		   {"git@example.com:x/y.git", "ssh is not supported"},
		   {"file:///etc", "must begin with https://"},
		   {"/srv/repo.git", "must begin with https://"},
		   {"git://example.com/x.git", "must begin with https://"},
		   {"https://user:pass@example.com/x.git", "take it out"},
		   {"https://", "not a URL"},
		   {"https://example.com/a b", "not a URL"}};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const struct code_source s = {.git_url = bad[i].url};

		assert_int_equal(code_check(&s, &why), -EINVAL);
		if (!strstr(why.text, bad[i].word))
			fail_msg("%s: %s", bad[i].url, why.text);
		assert_null(strstr(why.text, "pass@"));
	}
}

static void test_branch_and_commit_names_are_checked(void **state)
{
	static const char *const branches[] = {"-x", "a b", "a..b",  "a:b", "",
					       "/a", "a/",  "x@{1}", "*"};
	static const char *const commits[] = {"abc", "xyz1234", "HEAD~1"};
	struct code_source s = {.git_url = "https://example.com/x.git"};

	(void)state;
	assert_int_equal(code_check(&s, &why), 0);
	for (size_t i = 0; i < sizeof(branches) / sizeof(*branches); i++) {
		s.branch = branches[i];
		assert_int_equal(code_check(&s, &why), -EINVAL);
	}
	s.branch = "feature/x-1.2";
	assert_int_equal(code_check(&s, &why), 0);
	for (size_t i = 0; i < sizeof(commits) / sizeof(*commits); i++) {
		s.commit = commits[i];
		assert_int_equal(code_check(&s, &why), -EINVAL);
	}
	s = (struct code_source){.dir = "/x", .git_url = "https://example.com/"};
	assert_int_equal(code_check(&s, &why), -EINVAL);
	s = (struct code_source){0};
	assert_int_equal(code_check(&s, &why), -EINVAL);
}

/* ---- directories ------------------------------------------------------------------------- */

static void test_directory_is_copied_without_repository(void **state)
{
	struct code_source s = {.dir = sub("work")};
	char to[64];
	ssize_t n;

	(void)state;
	sh("ln -sf /etc/passwd work/out; echo x >outside");
	if (fetch(&s))
		fail_msg("%s", why.text);
	assert_string_equal(commit, "");
	assert_string_equal(content("t/a/b/f"), "two\n");
	sh("test -x t/run; test ! -x t/empty; test ! -e t/.git; test -L t/link");
	/* A link is copied, never what it leads to. */
	n = readlink(sub("t/out"), to, sizeof(to) - 1);
	assert_int_equal(n, strlen("/etc/passwd"));
	sh("rm work/out");
}

static void test_target_inside_the_directory_is_not_copied(void **state)
{
	struct code_source s = {.dir = top};

	(void)state;
	sh("rm -rf t");
	assert_int_equal(code_fetch(&s, sub("t"), commit, &why), 0);
	sh("test -e t/work/run; test ! -e t/t");
}

static void test_directory_that_cannot_be_taken_is_named(void **state)
{
	struct code_source s = {.dir = sub("pipes")};

	(void)state;
	sh("mkdir pipes; mkfifo pipes/p");
	assert_refused(&s, "neither a file nor a directory");
	s.dir = sub("nothing");
	assert_refused(&s, "not a directory");
	s.dir = sub("big");
	s.size_max = 1000;
	assert_refused(&s, "larger than");
}

static void test_target_that_is_not_empty_is_refused(void **state)
{
	struct code_source s = {.dir = sub("work")};

	(void)state;
	sh("rm -rf t; mkdir t; echo mine >t/mine");
	assert_int_equal(code_fetch(&s, sub("t"), commit, &why), -ENOTEMPTY);
	assert_string_equal(content("t/mine"), "mine\n");
	sh("rm -rf t; ln -s outdir t; mkdir -p outdir");
	assert_true(code_fetch(&s, sub("t"), commit, &why) < 0);
	sh("test -z \"$(ls -A outdir)\"; rm t");
}

#define CASE(f) cmocka_unit_test(f)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(test_default_branch_is_checked_out),
		CASE(test_branch_tag_and_commit_can_be_chosen),
		CASE(test_missing_branch_commit_or_repository_is_named),
		CASE(test_credentials_are_used_and_never_shown),
		CASE(test_redirects_are_not_followed),
		CASE(test_users_configuration_does_not_count),
		CASE(test_evil_trees_write_nothing_outside),
		CASE(test_submodules_stay_empty_and_filters_do_not_run),
		CASE(test_code_that_is_too_large_is_refused),
		CASE(test_other_addresses_are_refused_with_advice),
		CASE(test_branch_and_commit_names_are_checked),
		CASE(test_directory_is_copied_without_repository),
		CASE(test_target_inside_the_directory_is_not_copied),
		CASE(test_directory_that_cannot_be_taken_is_named),
		CASE(test_target_that_is_not_empty_is_refused),
	};
	char pattern[256];

	if (argc > 1) {
		snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
		cmocka_set_test_filter(pattern);
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
