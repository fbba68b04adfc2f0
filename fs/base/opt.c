/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/opt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/base/opt_completion.h"
#include "fs/base/standard.h"
#include "fs/base/suggest.h"
#include "fs/base/units.h"

static const struct opt_spec *find(const struct opt_spec *specs, const char *name,
				   size_t n)
{
	for (; specs && specs->name; specs++)
		if (strlen(specs->name) == n && !strncmp(specs->name, name, n))
			return specs;
	return NULL;
}

static const struct opt_spec *find_letter(const struct opt_spec *specs, char letter)
{
	for (; specs && specs->name; specs++)
		if (specs->letter == letter)
			return specs;
	return NULL;
}

static int set_choice(const struct opt_spec *s, int *to, const char *value,
		      struct why *why)
{
	char all[128] = "";

	for (int i = 0; s->choices[i]; i++) {
		if (!strcmp(s->choices[i], value)) {
			*to = i;
			return 0;
		}
		if (i)
			strncat(all, ", ", sizeof(all) - strlen(all) - 1);
		strncat(all, s->choices[i], sizeof(all) - strlen(all) - 1);
	}
	return why_set(why, -EINVAL, "--%s %s: must be one of %s", s->name, value, all);
}

static int set_number(const struct opt_spec *s, uint64_t *to, const char *value,
		      struct why *why)
{
	uint64_t number = 0;
	char *end;
	int r = 0;

	if (s->type == OPT_SIZE) {
		r = units_parse_size(value, &number);
	} else if (s->type == OPT_DURATION) {
		r = units_parse_duration(value, &number);
	} else {
		errno = 0;
		number = strtoull(value, &end, 10);
		if (!*value || *end || *value == '-' || errno)
			r = -EINVAL;
	}
	if (r < 0)
		return why_set(why, -EINVAL, "--%s %s: not a %s", s->name, value,
			       s->type == OPT_SIZE       ? "size such as 512M or 10GiB"
			       : s->type == OPT_DURATION ? "duration such as 30s or 5m"
							 : "number");
	if (number < s->min || (s->max && number > s->max))
		return why_set(why, -EINVAL,
			       "--%s %s: out of range (%" PRIu64 " to %" PRIu64 ")",
			       s->name, value, s->min, s->max ? s->max : UINT64_MAX);
	*to = number;
	return 0;
}

static int set_flag(const struct opt_spec *s, bool *to, const char *value,
		    struct why *why)
{
	if (!value || !strcmp(value, "true") || !strcmp(value, "yes"))
		*to = true;
	else if (!strcmp(value, "false") || !strcmp(value, "no"))
		*to = false;
	else
		return why_set(why, -EINVAL, "--%s takes no value but true or false",
			       s->name);
	return 0;
}

static int set_spec(const struct opt_spec *s, void *options, const char *value,
		    struct why *why)
{
	void *to = (char *)options + s->field;
	struct opt_strings *strings = to;

	switch (s->type) {
	case OPT_FLAG:
		return set_flag(s, to, value, why);
	case OPT_STRING:
		*(const char **)to = value;
		return 0;
	case OPT_STRINGS:
		if (strings->count == OPT_STRINGS_MAX)
			return why_set(why, -EINVAL, "--%s: given more than %d times",
				       s->name, OPT_STRINGS_MAX);
		strings->items[strings->count++] = value;
		return 0;
	case OPT_CHOICE:
		return set_choice(s, to, value, why);
	case OPT_SIZE:
	case OPT_DURATION:
	case OPT_UINT:
		return set_number(s, to, value, why);
	case OPT_TYPE_N:
		break;
	}
	check(!"option type");
}

static int unknown(const struct opt_spec *specs, const char *dashes, const char *name,
		   struct why *why)
{
	size_t count = 0;
	const char *near = NULL;

	while (specs && specs[count].name)
		count++;
	if (count)
		near = suggest_nearest(name, &specs->name, count, sizeof(*specs));
	if (near)
		return why_set(why, -EINVAL, "unknown option %s%s, did you mean --%s?",
			       dashes, name, near);
	return why_set(why, -EINVAL, "unknown option %s%s, see --help", dashes, name);
}

int opt_set(const struct opt_spec *specs, void *options, const char *name,
	    const char *value, struct why *why)
{
	const struct opt_spec *s = find(specs, name, strlen(name));

	if (!s)
		return unknown(specs, "", name, why);
	if (!value && s->type != OPT_FLAG)
		return why_set(why, -EINVAL, "%s needs a value: %s=%s", name, name,
			       s->value ? s->value : "VALUE");
	return set_spec(s, options, value, why);
}

static int set_defaults(const struct opt_spec *specs, void *options, struct why *why)
{
	for (const struct opt_spec *s = specs; s && s->name; s++) {
		int r = s->init ? set_spec(s, options, s->init, why) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* One "--name[=value]"; takes the next argument as the value where one is needed. */
static int parse_long(const struct opt_spec *specs, void *options, char **argv, int *at,
		      int argc, struct why *why)
{
	const char *name = argv[*at] + 2, *equals = strchr(name, '=');
	size_t n = equals ? (size_t)(equals - name) : strlen(name);
	const struct opt_spec *s = find(specs, name, n);
	const char *value = equals ? equals + 1 : NULL;

	if (!s && !value && !strncmp(name, "no-", 3)) {
		s = find(specs, name + 3, n - 3);
		if (s && s->type == OPT_FLAG)
			return set_spec(s, options, "false", why);
		s = NULL;
	}
	if (!s) {
		char word[64];

		snprintf(word, sizeof(word), "%.*s", (int)(n < 63 ? n : 63), name);
		return unknown(specs, "--", word, why);
	}
	if (s->type != OPT_FLAG && !value) {
		if (*at + 1 >= argc)
			return why_set(why, -EINVAL, "--%s needs a value: --%s %s",
				       s->name, s->name, s->value ? s->value : "VALUE");
		value = argv[++*at];
	}
	return set_spec(s, options, value, why);
}

/* "-abc", "-oVALUE", "-o VALUE". */
static int parse_short(const struct opt_spec *specs, void *options, char **argv, int *at,
		       int argc, struct why *why)
{
	for (const char *c = argv[*at] + 1; *c; c++) {
		const struct opt_spec *s = find_letter(specs, *c);
		char letter[2] = {*c, '\0'};
		int r;

		if (!s)
			return unknown(specs, "-", letter, why);
		if (s->type == OPT_FLAG) {
			r = set_spec(s, options, NULL, why);
			if (r < 0)
				return r;
			continue;
		}
		if (c[1])
			return set_spec(s, options, c + 1, why);
		if (*at + 1 >= argc)
			return why_set(why, -EINVAL, "-%c needs a value", *c);
		return set_spec(s, options, argv[++*at], why);
	}
	return 0;
}

int opt_parse(const struct opt_spec *specs, void *options, int *argc, char **argv,
	      struct why *why)
{
	bool only_arguments = false;
	int kept = 0;
	int r;

	r = set_defaults(specs, options, why);
	for (int i = 0; i < *argc && r == 0; i++) {
		if (only_arguments || argv[i][0] != '-' || !argv[i][1])
			argv[kept++] = argv[i];
		else if (!strcmp(argv[i], "--"))
			only_arguments = true;
		else if (argv[i][1] == '-')
			r = parse_long(specs, options, argv, &i, *argc, why);
		else
			r = parse_short(specs, options, argv, &i, *argc, why);
	}
	if (r == 0)
		*argc = kept;
	return r;
}

static void print_options(FILE *out, const struct opt_spec *specs)
{
	for (const struct opt_spec *s = specs; s && s->name; s++) {
		char left[64];

		snprintf(left, sizeof(left), "%s%c%s--%s%s%s", s->letter ? "-" : "  ",
			 s->letter ? s->letter : ' ', s->letter ? ", " : " ", s->name,
			 s->value ? " " : "", s->value ? s->value : "");
		fprintf(out, "  %-32s %s", left, s->help);
		if (s->init && s->type != OPT_FLAG)
			fprintf(out, " [%s]", s->init);
		fputc('\n', out);
	}
	fprintf(out, "  %-32s %s\n", "    --help", "show this text");
}

void opt_print_help(FILE *out, const struct program *program,
		    const struct command *command)
{
	if (command) {
		fprintf(out, "%s%s%s: %s\n\n", program->name, *command->name ? " " : "",
			command->name, command->summary);
		if (command->examples)
			fprintf(out, "Examples:\n%s\n", command->examples);
		fprintf(out, "Usage: %s%s%s%s%s [options]\n\nOptions:\n", program->name,
			*command->name ? " " : "", command->name,
			*command->args ? " " : "", command->args);
		print_options(out, command->options);
		return;
	}
	fprintf(out, "%s: %s\n\nUsage: %s COMMAND [options]\n\nCommands:\n",
		program->name, program->summary, program->name);
	for (int i = 0; program->commands[i]; i++)
		fprintf(out, "  %-12s %s\n", program->commands[i]->name,
			program->commands[i]->summary);
	fprintf(out,
		"\n\"%s COMMAND --help\" shows examples and options; "
		"\"%s completion bash\", zsh or fish prints a completion script.\n",
		program->name, program->name);
}

void opt_print_man(FILE *out, const struct program *program)
{
	for (int i = 0; program->commands[i]; i++) {
		const struct command *c = program->commands[i];

		if (*c->name)
			fprintf(out, ".Ss %s %s\n%s\n", c->name, c->args, c->summary);
		fprintf(out, ".Bl -tag -width indent\n");
		for (const struct opt_spec *s = c->options; s && s->name; s++) {
			fprintf(out, ".It Fl \\-%s%s%s\n%s\n", s->name,
				s->value ? " Ar " : "", s->value ? s->value : "",
				s->help);
			if (s->init && s->type != OPT_FLAG)
				fprintf(out, "(default %s)\n", s->init);
		}
		fprintf(out, ".El\n");
	}
}

static int run_command(const struct program *p, const struct command *c, int argc,
		       char **argv)
{
	struct why why = {""};
	void *options;
	int r;

	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			opt_print_help(stdout, p, c);
			return EXIT_OK;
		}
	}
	options = calloc(1, c->options_size ? c->options_size : 1);
	if (!options)
		return EXIT_INTERNAL;
	r = opt_parse(c->options, options, &argc, argv, &why);
	if (r == 0 && argc < c->args_min)
		r = why_set(&why, -EINVAL, "missing argument: %s%s%s %s", p->name,
			    *c->name ? " " : "", c->name, c->args);
	if (r == 0 && c->args_max >= 0 && argc > c->args_max)
		r = why_set(&why, -EINVAL, "unexpected argument \"%s\": %s%s%s %s",
			    argv[c->args_max], p->name, *c->name ? " " : "", c->name,
			    c->args);
	if (r < 0) {
		char text[1024];

		fprintf(stderr, "%s: %s (%s%s%s --help shows how)\n", p->name,
			log_escape(text, sizeof(text), why.text), p->name,
			*c->name ? " " : "", c->name);
		free(options);
		return EXIT_USAGE;
	}
	r = c->run(options, argc, argv);
	free(options);
	return r;
}

static int unknown_command(const struct program *p, const char *word)
{
	size_t count = 0;
	const char *names[64], *near;
	char shown[256];

	for (; count < 64 && p->commands[count]; count++)
		names[count] = p->commands[count]->name;
	near = suggest_nearest(word, names, count, sizeof(*names));
	fprintf(stderr, "%s: unknown command \"%s\"%s%s%s; see %s --help\n", p->name,
		log_escape(shown, sizeof(shown), word), near ? ", did you mean \"" : "",
		near ? near : "", near ? "\"?" : "", p->name);
	return EXIT_USAGE;
}

static int run_program(const struct program *p, int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	bool single = !*p->commands[0]->name;

	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		printf("%s %s\n", p->name, p->version);
		return EXIT_OK;
	}
	if (!strcmp(word, "completion") && argc == 3) {
		if (opt_print_completion(stdout, p, argv[2]))
			return EXIT_OK;
		fprintf(stderr, "%s: there is a completion for bash, zsh and fish\n",
			p->name);
		return EXIT_USAGE;
	}
	if (!strcmp(word, "man-options")) { /* for the build: not shown in --help */
		opt_print_man(stdout, p);
		return EXIT_OK;
	}
	if (single)
		return run_command(p, p->commands[0], argc - 1, argv + 1);
	if (!*word || !strcmp(word, "--help") || !strcmp(word, "-h") ||
	    !strcmp(word, "help")) {
		opt_print_help(*word ? stdout : stderr, p, NULL);
		return *word ? EXIT_OK : EXIT_USAGE;
	}
	for (int i = 0; p->commands[i]; i++)
		if (!strcmp(p->commands[i]->name, word))
			return run_command(p, p->commands[i], argc - 2, argv + 2);
	return unknown_command(p, word);
}

int opt_main(const struct program *p, int argc, char **argv)
{
	return standard_close(p->name, run_program(p, argc, argv));
}
