/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines: every option stands once, in a table. The parser, --help, the shell
 * completion and the man page's option list all come from it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct why;

enum opt_type {
	OPT_FLAG,     /* bool; "--no-NAME" clears it */
	OPT_STRING,   /* const char *, points into argv */
	OPT_STRINGS,  /* struct opt_strings; the option may be repeated */
	OPT_SIZE,     /* uint64_t bytes */
	OPT_DURATION, /* uint64_t milliseconds */
	OPT_UINT,     /* uint64_t */
	OPT_CHOICE,   /* int: index into `choices` */
	OPT_TYPE_N
};

#define OPT_STRINGS_MAX 256

struct opt_strings {
	const char *items[OPT_STRINGS_MAX];
	size_t count;
};

struct opt_spec {
	const char *name; /* without dashes */
	char letter;      /* 0: none */
	enum opt_type type;
	size_t field;               /* offsetof the value in the caller's struct */
	const char *init;           /* default as text; NULL: zero */
	uint64_t min, max;          /* numbers only; max 0: no limit */
	const char *value;          /* name of the value in help: "DIR" */
	const char *help;           /* one sentence, lower case, no full stop */
	const char *const *choices; /* OPT_CHOICE: NULL-terminated */
};

struct command {
	const char *name;     /* "mount" */
	const char *args;     /* "SOURCE DIR" */
	const char *summary;  /* one line, lower case */
	const char *examples; /* lines for --help, each indented by two blanks */
	const struct opt_spec *options; /* ends with name == NULL */
	size_t options_size;            /* of the struct the offsets are into */
	int args_min, args_max;         /* positional arguments; max -1: any number */
	/* `options` is filled; argv holds the positional arguments. Returns the exit code. */
	int (*run)(void *options, int argc, char **argv);
};

struct program {
	const char *name;
	const char *summary;
	const char *version;
	const struct command *const *commands; /* ends with NULL; a single unnamed command
						* when the program has no sub-commands */
};

/* Fills defaults, then argv (GNU style: long names, "=", "--"); positional arguments are
 * moved to the front of argv and counted in *argc. -EINVAL with a sentence. */
int opt_parse(const struct opt_spec *specs, void *options, int *argc, char **argv,
	      struct why *why);

/* One "name=value" as it stands after -o in fstab or in a file. */
int opt_set(const struct opt_spec *specs, void *options, const char *name,
	    const char *value, struct why *why);

/* Finds the command, answers --help, --version and "completion SHELL", parses, runs.
 * Returns the exit code for main(), which then returns: stdout is closed, and was checked. */
int opt_main(const struct program *program, int argc, char **argv);

/* The tables as text. */
void opt_print_help(FILE *out, const struct program *program,
		    const struct command *command);
void opt_print_man(FILE *out,
		   const struct program *program); /* mdoc lists of all options */
