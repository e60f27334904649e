/* The flags of once serve against the one table of settings. */
#include <string.h>

#include "check_c.h"
#include "cli/commands.h"
#include "config/config.h"

static void same_text(const char *a, const char *b)
{
    assert_true((a == NULL) == (b == NULL));
    if (a != NULL) {
        assert_string_equal(a, b);
    }
}

static enum option_kind kind_of(const struct config_option *option)
{
    switch (option->kind) {
    case CONFIG_TEXT:
    case CONFIG_LIST:
    case CONFIG_STATUSES:
    case CONFIG_RULES:
    case CONFIG_OWN:
    case CONFIG_REAL:
    case CONFIG_BOOL: return OPTION_TEXT;
    case CONFIG_DURATION: return OPTION_DURATION;
    case CONFIG_SIZE: return OPTION_SIZE;
    case CONFIG_COUNT: return OPTION_COUNT;
    case CONFIG_CHOICE: return OPTION_CHOICE;
    }
    return OPTION_FLAG;
}

static void same_option(const struct option_def *option, const struct config_option *o)
{
    assert_non_null(option);
    same_text(option->env, o->env);
    same_text(option->fallback, o->fallback);
    assert_true(
        option->kind == kind_of(o) || (option->kind == OPTION_FILE && o->kind == CONFIG_TEXT));
    assert_true(option->repeated == (o->kind == CONFIG_LIST || o->kind == CONFIG_RULES));
    for (size_t i = 0; o->kind == CONFIG_CHOICE && o->choices[i] != NULL; i++) {
        same_text(option->choices[i], o->choices[i]);
    }
}

static void every_flag_of_the_table_is_an_option_of_serve(void **state)
{
    (void)state;
    size_t flags = 0;
    for (const struct config_option *o = config_options; o->path != NULL; o++) {
        if (o->flag != NULL) {
            same_option(option_find(command_find("serve"), o->flag), o);
            flags++;
        }
    }
    assert_true(flags >= 8);
}

static void every_flag_of_the_gateway_is_an_option_of_its_command(void **state)
{
    (void)state;
    size_t flags = 0;
    if (command_find("gateway") == NULL) {
        skip();
    }
    for (const struct config_option *o = config_gateway_options; o->path != NULL; o++) {
        if (o->flag != NULL) {
            same_option(option_find(command_find("gateway"), o->flag), o);
            flags++;
        }
    }
    assert_int_equal(flags, 4);
}

static void every_option_of_serve_is_in_the_table_or_its_own(void **state)
{
    (void)state;
    static const char *const own[] = {"config", "test", "json"};
    for (const struct option_def *option = command_find("serve")->options; option->name != NULL;
         option++) {
        bool found = false;
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
            found = found || strcmp(own[i], option->name) == 0;
        }
        for (const struct config_option *o = config_options; o->path != NULL; o++) {
            found = found || (o->flag != NULL && strcmp(o->flag, option->name) == 0);
        }
        assert_true(found);
    }
}

/* ONCE_LIMITS_BODY_BYTES_MAX is limits.body_bytes_max: nobody has to look it up. */
static void check_variable(const struct config_option *option)
{
    char name[64] = "ONCE_";
    size_t len = strlen(option->path);
    assert_true(len < sizeof name - 5);
    for (size_t i = 0; i <= len; i++) {
        char c = option->path[i];
        name[5 + i] = (char)(c == '.' ? '_' : c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    }
    assert_string_equal(option->env, name);
}

static void every_variable_is_made_from_its_path(void **state)
{
    (void)state;
    for (const struct config_option *o = config_options; o->path != NULL; o++) {
        if (o->kind != CONFIG_OWN) {
            check_variable(o);
        } else {
            assert_null(o->env); /* nothing about tokens is for an environment */
        }
        if (o->help == NULL) {
            /* Sections with tables of their own. */
            assert_int_equal(o->kind, CONFIG_OWN);
            continue;
        }
        assert_non_null(o->unsure);
        assert_true(o->fallback != NULL || o->example != NULL || o->kind == CONFIG_OWN);
    }
    for (const struct config_option *o = config_gateway_options; o->path != NULL; o++) {
        /* What a route may say has a variable only where it is also a flag. */
        assert_true((o->env != NULL) ==
                    ((o->in == CONFIG_IN_SECTION && o->kind != CONFIG_OWN) || o->flag != NULL));
        if (o->env != NULL) {
            check_variable(o);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_flag_of_the_table_is_an_option_of_serve),
        TEST(every_flag_of_the_gateway_is_an_option_of_its_command),
        TEST(every_option_of_serve_is_in_the_table_or_its_own),
        TEST(every_variable_is_made_from_its_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
