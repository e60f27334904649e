/* The example file: every setting with its default, what it costs, and what to do if unsure. */
#include <stdio.h>
#include <string.h>

#include "config/impl.h"

enum { COLUMNS = 98 };

/* A paragraph as comment lines. */
static void put_prose(struct buf *out, const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > 0 && column + 1 + word > COLUMNS) {
            buf_char(out, '\n');
            column = 0;
        }
        buf_str(out, column == 0 ? "# " : " ");
        buf_slice(out, slice_of(text, word));
        column += (column == 0 ? 2 : 1) + word;
        text += word + (text[word] == ' ');
    }
    buf_char(out, '\n');
}

static void put_facts(struct buf *out, const struct config_option *option)
{
    char line[512];
    (void)snprintf(line, sizeof line, "%s: %s%s%s%s%s%s%s.", option->path,
        option->fallback == NULL ? "not set by default" : "default ",
        option->fallback == NULL ? "" : option->fallback, option->env == NULL ? "" : "; also $",
        option->env == NULL ? "" : option->env, option->flag == NULL ? "" : ", --",
        option->flag == NULL ? "" : option->flag,
        option->at_start ? "; a change needs a restart" : "");
    put_prose(out, line);
}

static void put_tokens(struct buf *out)
{
    buf_str(out,
        "#  tokens:\n"
        "#    - sha256: \"0000000000000000000000000000000000000000000000000000000000000000\"\n"
        "#      tenant: acme\n"
        "#      rights: [execute, operate, audit, confirm]\n"
        "#      name: checkout service\n");
}

static void put_option(struct buf *out, const struct config_option *option)
{
    char unsure[512];
    const char *dot = strchr(option->path, '.');
    put_facts(out, option);
    put_prose(out, option->help);
    (void)snprintf(unsure, sizeof unsure, "If unsure: %s", option->unsure);
    put_prose(out, unsure);
    if (option->kind == CONFIG_TOKENS) {
        put_tokens(out);
    } else {
        buf_printf(out, "#%s%s: %s\n", dot == NULL ? "" : "  ",
            dot == NULL ? option->path : dot + 1,
            option->fallback == NULL ? option->example : option->fallback);
    }
    buf_char(out, '\n');
}

void config_example_put(struct buf *out)
{
    struct slice section = SLICE_EMPTY;
    put_prose(out,
        "once.yaml: everything that once serve can be told. Every setting is here with its "
        "default, commented out; what is commented out costs nothing. A line of words begins with "
        "a hash and a space, a setting with a hash alone: remove it, and the one before the name "
        "of its section.");
    buf_str(out, "#\n");
    put_prose(out,
        "Flags win over ONCE_* variables, these over this file, this over the defaults. Unknown "
        "names are errors. Durations: 300ms, 30s, 5m, 24h, 14d. Sizes: 64KiB, 10MiB. Paths are as "
        "seen from the directory the server is started in. once check once.yaml says whether it is "
        "right; kill -HUP takes a changed one over without a restart where that is possible.");
    buf_char(out, '\n');
    for (const struct config_option *o = config_options; o->path != NULL; o++) {
        const char *dot = strchr(o->path, '.');
        struct slice own = slice_of(o->path, dot == NULL ? 0 : (size_t)(dot - o->path));
        if (own.len > 0 && !slice_equal(own, section)) {
            buf_printf(out, "#%.*s:\n", SLICE_ARGS(own));
        }
        section = own;
        put_option(out, o);
    }
}
