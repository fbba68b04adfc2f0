/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts for the shells, from the tables of commands and options. */
#include "fs/base/opt_completion.h"

#include <string.h>

static bool has_commands(const struct program *p)
{
	return *p->commands[0]->name;
}

/* Each of `special` gets a backslash; a quote ends and begins the shell's text again. */
static void put_escaped(FILE *out, const char *s, const char *special)
{
	for (; *s; s++) {
		if (*s == '\'')
			fputs("'\\''", out);
		else
			fprintf(out, "%s%c", strchr(special, *s) ? "\\" : "", *s);
	}
}

static bool takes_path(const struct opt_spec *s)
{
	return s->value && (!strcmp(s->value, "FILE") || !strcmp(s->value, "DIR"));
}

/* ---- bash ----------------------------------------------------------------------------- */

static void print_bash(FILE *out, const struct program *p)
{
	fprintf(out, "_%s()\n{\n\tlocal words=\"\"\n\tcase \"${COMP_WORDS[1]}\" in\n",
		p->name);
	for (int i = 0; p->commands[i]; i++) {
		const struct command *c = p->commands[i];

		fprintf(out, "\t%s) words=\"", *c->name ? c->name : "*");
		for (const struct opt_spec *s = c->options; s && s->name; s++)
			fprintf(out, "--%s ", s->name);
		fprintf(out, "--help\" ;;\n");
	}
	fprintf(out, "\tesac\n");
	if (has_commands(p)) {
		fprintf(out, "\t[ \"$COMP_CWORD\" -eq 1 ] && words=\"");
		for (int i = 0; p->commands[i]; i++)
			fprintf(out, "%s ", p->commands[i]->name);
		fprintf(out, "\"\n");
	}
	fprintf(out,
		"\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
		"\"${COMP_WORDS[COMP_CWORD]}\")\n}\ncomplete -o default -F _%s %s\n",
		p->name, p->name);
}

/* ---- zsh ------------------------------------------------------------------------------ */

#define ZSH_SPECIAL "\\[]:" /* in the text of a specification */

static void zsh_option(FILE *out, const struct opt_spec *s)
{
	fprintf(out, " \\\n\t\t'%s--%s%s[", s->type == OPT_STRINGS ? "*" : "", s->name,
		s->value ? "=" : "");
	put_escaped(out, s->help, ZSH_SPECIAL);
	fputc(']', out);
	if (s->value) {
		fprintf(out, ":");
		put_escaped(out, s->value, ZSH_SPECIAL);
		fprintf(out, ":%s", takes_path(s) ? "_files" : "");
	}
	if (s->type == OPT_CHOICE) {
		fputc('(', out);
		for (int i = 0; s->choices[i]; i++)
			fprintf(out, "%s%s", i ? " " : "", s->choices[i]);
		fputc(')', out);
	}
	fputc('\'', out);
}

static void zsh_command(FILE *out, const struct command *c)
{
	fprintf(out, "_arguments -s");
	for (const struct opt_spec *s = c->options; s && s->name; s++)
		zsh_option(out, s);
	fprintf(out, " \\\n\t\t'--help[show the options]' '*:argument:_files'");
}

static void print_zsh(FILE *out, const struct program *p)
{
	fprintf(out, "#compdef %s\n_%s()\n{\n", p->name, p->name);
	if (!has_commands(p)) {
		fputc('\t', out);
		zsh_command(out, p->commands[0]);
		fprintf(out, "\n}\n_%s \"$@\"\n", p->name);
		return;
	}
	fprintf(out, "\tlocal -a commands=(");
	for (int i = 0; p->commands[i]; i++) {
		fprintf(out, "\n\t\t'%s:", p->commands[i]->name);
		put_escaped(out, p->commands[i]->summary, ZSH_SPECIAL);
		fputc('\'', out);
	}
	fprintf(out, ")\n\tif (( CURRENT == 2 )); then\n"
		     "\t\t_describe command commands\n\t\treturn\n\tfi\n"
		     "\tlocal command=$words[2]\n\tshift words\n\t(( CURRENT-- ))\n"
		     "\tcase $command in\n");
	for (int i = 0; p->commands[i]; i++) {
		fprintf(out, "\t%s) ", p->commands[i]->name);
		zsh_command(out, p->commands[i]);
		fprintf(out, " ;;\n");
	}
	fprintf(out, "\tesac\n}\n_%s \"$@\"\n", p->name);
}

/* ---- fish ----------------------------------------------------------------------------- */

/* Within quotes fish knows \\ and \', and no other way to a quote. */
static void fish_text(FILE *out, const char *s)
{
	fputc('\'', out);
	for (; *s; s++)
		fprintf(out, "%s%c", strchr("\\'", *s) ? "\\" : "", *s);
	fputc('\'', out);
}

static void fish_command(FILE *out, const struct program *p, const struct command *c)
{
	for (const struct opt_spec *s = c->options; s && s->name; s++) {
		fprintf(out, "complete -c %s", p->name);
		if (*c->name)
			fprintf(out, " -n '__fish_seen_subcommand_from %s'", c->name);
		fprintf(out, " -l %s", s->name);
		if (s->letter)
			fprintf(out, " -s %c", s->letter);
		if (s->value)
			fputs(takes_path(s) ? " -r -F" : " -x", out);
		if (s->type == OPT_CHOICE) {
			fputs(" -a '", out);
			for (int i = 0; s->choices[i]; i++)
				fprintf(out, "%s%s", i ? " " : "", s->choices[i]);
			fputc('\'', out);
		}
		fputs(" -d ", out);
		fish_text(out, s->help);
		fputc('\n', out);
	}
}

static void print_fish(FILE *out, const struct program *p)
{
	for (int i = 0; p->commands[i]; i++) {
		const struct command *c = p->commands[i];

		if (*c->name) {
			fprintf(out,
				"complete -c %s -n __fish_use_subcommand -f -a %s -d ",
				p->name, c->name);
			fish_text(out, c->summary);
			fputc('\n', out);
		}
		fish_command(out, p, c);
	}
	fprintf(out, "complete -c %s -l help -d 'show the options'\n", p->name);
}

bool opt_print_completion(FILE *out, const struct program *program, const char *shell)
{
	static const struct {
		const char *name;
		void (*print)(FILE *out, const struct program *p);
	} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

	for (size_t i = 0; i < sizeof(shells) / sizeof(*shells); i++) {
		if (!strcmp(shell, shells[i].name)) {
			shells[i].print(out, program);
			return true;
		}
	}
	return false;
}
