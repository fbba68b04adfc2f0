/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the child: fetch the objects into a bare repository, find the commit, write its tree.
 * libgit2 brings the objects; the files are written by code_tree.c, not by libgit2's
 * checkout, so there are no filters, no hooks, no submodules, and no path that the tree
 * module has not seen.
 */
#include <git2.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "runner/code_git.h"
#include "runner/code_tree.h"

#if LIBGIT2_VER_MAJOR == 1 && LIBGIT2_VER_MINOR < 4
#error "libgit2 1.4 or newer is needed: older ones cannot be told not to follow redirects"
#endif

#define DEPTH_MAX 128 /* directories in directories */
#define ALIVE_EVERY_MS 200
#define TAKEN_REF "refs/sluice/taken"

struct child {
	const struct code_source *source;
	struct code_tree *tree;
	int report;
	int asked; /* how often the server wanted credentials */
	bool too_large;
	uint64_t alive_ms; /* when the last sign of life was sent */
	git_repository *repo;
	git_remote *remote;
	struct code_git_message m;
};

/* libgit2's reason, as a sentence of ours. */
static int complain(struct child *c, int r, const char *what)
{
	const git_error *e = git_error_last();

	return why_set(&c->m.why, err_origin(r), "git: %s %s: %s", what,
		       c->source->git_url,
		       e && e->message ? e->message : "no reason given");
}

static void say_alive(struct child *c)
{
	const struct code_git_message alive = {.kind = CODE_GIT_ALIVE};
	uint64_t now = clock_mono_ms();

	if (now - c->alive_ms < ALIVE_EVERY_MS)
		return;
	c->alive_ms = now;
	if (io_write(c->report, &alive, sizeof(alive)))
		_exit(1); /* the runner is gone */
}

/* ---- callbacks of libgit2 --------------------------------------------------------------- */

static int on_credentials(git_credential **out, const char *url, const char *user,
			  unsigned int allowed, void *payload)
{
	struct child *c = payload;
	const struct code_source *s = c->source;

	(void)url, (void)user;
	if (!s->password || c->asked++ || !(allowed & GIT_CREDENTIAL_USERPASS_PLAINTEXT))
		return GIT_EAUTH;
	/* A token alone: any user will do at GitHub and GitLab; this one at both. */
	return git_credential_userpass_plaintext_new(out, s->user ? s->user : "oauth2",
						     s->password);
}

static int on_progress(const git_indexer_progress *p, void *payload)
{
	struct child *c = payload;

	say_alive(c);
	c->too_large = p->received_bytes > c->tree->bytes_max;
	return c->too_large ? -1 : 0;
}

static int on_text(const char *text, int n, void *payload)
{
	(void)text, (void)n; /* the server's words are nobody's terminal's business */
	say_alive(payload);
	return 0;
}

static void set_callbacks(struct child *c, git_remote_callbacks *callbacks)
{
	callbacks->credentials = on_credentials;
	callbacks->transfer_progress = on_progress;
	callbacks->sideband_progress = on_text;
	callbacks->payload = c;
}

/* ---- the objects ------------------------------------------------------------------------ */

static int explain_connect(struct child *c, int r)
{
	if (r == GIT_EAUTH && !c->source->password)
		return why_set(
			&c->m.why, err_origin(-EACCES),
			"git: %s wants a user and password or token: give code.user "
			"and code.password, or code.token",
			c->source->git_url);
	if (r == GIT_EAUTH)
		return why_set(&c->m.why, err_origin(-EACCES),
			       "git: %s refuses the user, password or token",
			       c->source->git_url);
	return complain(c, -EIO, "cannot reach");
}

static int connect_remote(struct child *c)
{
	git_remote_connect_options o;
	int r = git_remote_create_anonymous(&c->remote, c->repo, c->source->git_url);

	if (r)
		return complain(c, -EINVAL, "cannot use");
	git_remote_connect_options_init(&o, GIT_REMOTE_CONNECT_OPTIONS_VERSION);
	set_callbacks(c, &o.callbacks);
	o.follow_redirects = GIT_REMOTE_REDIRECT_NONE;
	o.proxy_opts.type =
		GIT_PROXY_AUTO; /* of the environment: no configuration is read */
	r = git_remote_connect_ext(c->remote, GIT_DIRECTION_FETCH, &o);
	return r ? explain_connect(c, r) : 0;
}

static bool has_ref(const git_remote_head **heads, size_t n, const char *prefix,
		    const char *name, struct buf *out)
{
	size_t m = strlen(prefix);

	for (size_t i = 0; i < n; i++)
		if (!strncmp(heads[i]->name, prefix, m) &&
		    !strcmp(heads[i]->name + m, name)) {
			buf_printf(out, "+%s%s:" TAKEN_REF, prefix, name);
			return true;
		}
	return false;
}

/* What to fetch: the branch or tag, or what HEAD names; all of them for a bare commit. */
static int choose_refspec(struct child *c, struct buf *spec)
{
	const struct code_source *s = c->source;
	const git_remote_head **heads;
	git_buf head = GIT_BUF_INIT;
	size_t n;

	if (git_remote_ls(&heads, &n, c->remote))
		return complain(c, -EIO, "cannot list the branches of");
	if (s->branch) {
		if (has_ref(heads, n, "refs/heads/", s->branch, spec) ||
		    has_ref(heads, n, "refs/tags/", s->branch, spec))
			return 0;
		return why_set(&c->m.why, err_origin(-ENOENT),
			       "git: %s has no branch or tag \"%s\"", s->git_url,
			       s->branch);
	}
	if (s->commit) {
		buf_puts(spec, "+refs/heads/*:refs/heads/*");
		return 0;
	}
	if (git_remote_default_branch(&head, c->remote))
		return why_set(
			&c->m.why, err_origin(-ENOENT),
			"git: %s has no default branch (empty repository?); name one",
			s->git_url);
	buf_printf(spec, "+%s:" TAKEN_REF, head.ptr);
	git_buf_dispose(&head);
	return 0;
}

static int fetch(struct child *c)
{
	git_fetch_options o;
	struct buf spec = BUF_INIT;
	int r = choose_refspec(c, &spec);
	char *words[] = {spec.data};
	const git_strarray specs = {.strings = words, .count = 1};

	if (r || buf_error(&spec)) {
		buf_fini(&spec);
		return r ? err_trace(r) : err_origin(-ENOMEM);
	}
	git_fetch_options_init(&o, GIT_FETCH_OPTIONS_VERSION);
	set_callbacks(c, &o.callbacks);
	o.follow_redirects = GIT_REMOTE_REDIRECT_NONE;
	o.proxy_opts.type = GIT_PROXY_AUTO;
	o.download_tags = GIT_REMOTE_DOWNLOAD_TAGS_NONE;
	r = git_remote_fetch(c->remote, &specs, &o, NULL);
	buf_fini(&spec);
	if (r && c->too_large)
		return code_tree_reserve(c->tree, "the repository's history", UINT64_MAX);
	return r ? complain(c, -EIO, "cannot fetch") : 0;
}

static int find_commit(struct child *c, git_commit **out)
{
	const char *name = c->source->commit ? c->source->commit : TAKEN_REF;
	git_object *object = NULL;
	int r = git_revparse_single(&object, c->repo, name);

	r = r ? r : git_object_peel((git_object **)out, object, GIT_OBJECT_COMMIT);
	git_object_free(object);
	if (!r)
		return 0;
	if (!c->source->commit)
		return complain(c, -EIO, "cannot find the newest commit of");
	return why_set(&c->m.why, err_origin(-ENOENT), "git: %s has no commit %s on %s%s",
		       c->source->git_url, c->source->commit,
		       c->source->branch ? "branch " : "any branch",
		       c->source->branch ? c->source->branch : "");
}

/* ---- the files -------------------------------------------------------------------------- */

struct level {
	git_tree *tree;
	size_t next;
	size_t path_len; /* of the directory, without a slash at its end */
};

static int write_blob(struct child *c, const git_tree_entry *e, const char *path)
{
	git_filemode_t mode = git_tree_entry_filemode(e);
	git_blob *blob = NULL;
	git_odb *odb = NULL;
	git_object_t type;
	size_t size = 0;
	int r, fd;

	/* Its size before its bytes: a small delta can stand for gigabytes. */
	r = git_repository_odb(&odb, c->repo);
	r = r ? r : git_odb_read_header(&size, &type, odb, git_tree_entry_id(e));
	git_odb_free(odb);
	if (r)
		return complain(c, -EIO, "damaged object in");
	r = code_tree_reserve(c->tree, path, size);
	if (r)
		return err_trace(r);
	if (git_blob_lookup(&blob, c->repo, git_tree_entry_id(e)))
		return complain(c, -EIO, "damaged file in");
	if (mode == GIT_FILEMODE_LINK) {
		char *to = strndup(git_blob_rawcontent(blob), size);

		r = to ? code_tree_add_link(c->tree, path, to) : err_origin(-ENOMEM);
		free(to);
	} else {
		fd = code_tree_add_file(c->tree, path,
					mode == GIT_FILEMODE_BLOB_EXECUTABLE);
		r = fd < 0 ? fd : io_write(fd, git_blob_rawcontent(blob), size);
		if (r && fd >= 0)
			why_set(&c->m.why, r, "cannot write %s: %s", path, strerror(-r));
		close_fdp(&fd);
	}
	git_blob_free(blob);
	return err_trace(r);
}

/* One entry; *below is set to a directory that is to be gone into. */
static int write_entry(struct child *c, const git_tree_entry *e, const char *path,
		       git_tree **below)
{
	int r;

	switch (git_tree_entry_type(e)) {
	case GIT_OBJECT_BLOB:
		return err_trace(write_blob(c, e, path));
	case GIT_OBJECT_TREE:
		r = code_tree_add_dir(c->tree, path);
		if (r)
			return err_trace(r);
		return git_tree_lookup(below, c->repo, git_tree_entry_id(e))
			       ? complain(c, -EIO, "damaged directory in")
			       : 0;
	default: /* a submodule: an empty directory, as git itself leaves it */
		return err_trace(code_tree_add_dir(c->tree, path));
	}
}

static int write_tree(struct child *c, git_tree *root)
{
	struct level levels[DEPTH_MAX] = {{.tree = root}};
	struct buf path = BUF_INIT;
	int depth = 0, r = 0;

	while (!r && depth >= 0) {
		struct level *l = &levels[depth];
		const git_tree_entry *e = git_tree_entry_byindex(l->tree, l->next++);
		git_tree *below = NULL;

		if (!e) {
			if (depth)
				git_tree_free(l->tree);
			depth--;
			continue;
		}
		say_alive(c);
		if (!code_tree_name_ok(git_tree_entry_name(e))) {
			r = why_set(&c->m.why, err_origin(-EINVAL),
				    "the code has a file called %s",
				    git_tree_entry_name(e));
			break;
		}
		path.len = l->path_len;
		buf_printf(&path, "%s%s", path.len ? "/" : "", git_tree_entry_name(e));
		r = buf_error(&path);
		r = r ? r : write_entry(c, e, path.data, &below);
		if (!below)
			continue;
		if (++depth == DEPTH_MAX)
			r = why_set(&c->m.why, err_origin(-ELOOP),
				    "git: more than %d directories in one another",
				    DEPTH_MAX);
		else
			levels[depth] =
				(struct level){.tree = below, .path_len = path.len};
	}
	buf_fini(&path);
	return err_trace(r ? r : code_tree_check_links(c->tree));
}

static int work(struct child *c, const char *objects)
{
	git_commit *commit = NULL;
	git_tree *root = NULL;
	int r;

	if (git_repository_init(&c->repo, objects, 1))
		return complain(c, -EIO, "cannot make a repository for");
	r = connect_remote(c);
	r = r ? r : fetch(c);
	r = r ? r : find_commit(c, &commit);
	if (r)
		return err_trace(r);
	git_oid_tostr(c->m.commit, sizeof(c->m.commit), git_commit_id(commit));
	if (git_commit_tree(&root, commit))
		return complain(c, -EIO, "damaged commit in");
	return err_trace(write_tree(c, root));
}

/* Nothing of the host's or the user's git configuration counts: it could send the request
 * elsewhere or turn verification off. */
static int set_up_library(const struct code_source *s)
{
	static const int levels[] = {GIT_CONFIG_LEVEL_SYSTEM, GIT_CONFIG_LEVEL_XDG,
				     GIT_CONFIG_LEVEL_GLOBAL,
				     GIT_CONFIG_LEVEL_PROGRAMDATA};

	if (git_libgit2_init() < 0)
		return err_origin(-EIO);
	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++)
		git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, levels[i], "");
	git_libgit2_opts(GIT_OPT_ENABLE_STRICT_HASH_VERIFICATION, 1);
	if (s->ca_file &&
	    git_libgit2_opts(GIT_OPT_SET_SSL_CERT_LOCATIONS, s->ca_file, NULL))
		return err_origin(-EINVAL);
	return 0;
}

static void limit_resources(const struct code_tree *t)
{
	/* Room for on_progress() to notice first: it has the better sentence. */
	const uint64_t pack = t->bytes_max + (64 << 20);
	const struct rlimit file = {pack, pack};

	/* A write over it fails instead of killing. */
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &file);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	{
		uint64_t most = 3 * t->bytes_max + (1ull << 30);
		const struct rlimit memory = {most, most};

		setrlimit(RLIMIT_AS, &memory);
	}
#endif
}

void code_git_child(const struct code_source *s, const char *objects,
		    struct code_tree *tree, int report)
{
	struct child c = {.source = s, .tree = tree, .report = report};
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int n = 1; n < NSIG; n++)
		signal(n, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	limit_resources(tree);
	tree->why = &c.m.why;
	c.m.result = set_up_library(s);
	if (c.m.result)
		why_set(&c.m.why, c.m.result, "git: cannot read the certificates in %s",
			s->ca_file ? s->ca_file : "the system's store");
	else
		c.m.result = work(&c, objects);
	if (c.m.result && !c.m.why.text[0])
		why_set(&c.m.why, 0, "git: %s", strerror(-c.m.result));
	c.m.kind = CODE_GIT_DONE;
	_exit(io_write(report, &c.m, sizeof(c.m)) ? 1 : 0);
}
