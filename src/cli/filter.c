#include "cli/filter.h"

#include "base/macros.h"

static const char *const names[] = {"scope", "key", "principal", "since", "older-than"};

/* A time in the past; never 0, which means no limit. */
static int64_t ago(const struct cli *cli, const char *name)
{
    if (cli_text(cli, name) == NULL) {
        return 0;
    }
    int64_t ms = cli_now_ms() - cli_ms(cli, name);
    return ms > 0 ? ms : 1;
}

struct filter filter_of(const struct cli *cli, enum once_status status)
{
    return (struct filter){.basic = {.scope = cli_text(cli, "scope"),
                               .key = cli_text(cli, "key"),
                               .status = status,
                               .updated_from_ms = ago(cli, "since"),
                               .updated_until_ms = ago(cli, "older-than")},
        .principal = cli_text(cli, "principal")};
}

bool filter_given(const struct cli *cli)
{
    for (size_t i = 0; i < COUNT(names); i++) {
        if (cli_flag(cli, names[i])) {
            return true;
        }
    }
    return false;
}

/* Visits only the operations that match filters which a store or a server cannot apply. */
struct choosing {
    const struct filter *filter;
    operation_visit visit;
    void *context;
};

static int choose(void *context, const struct operation *operation)
{
    const struct choosing *choosing = context;
    const char *principal = choosing->filter->principal;
    bool is_chosen = principal == NULL || slice_is(operation->principal, principal);
    return is_chosen ? choosing->visit(choosing->context, operation) : 0;
}

int filter_each(
    struct backend *backend, const struct filter *filter, operation_visit visit, void *context)
{
    struct choosing choosing = {filter, visit, context};
    return backend->ops->iterate(backend, &filter->basic, choose, &choosing);
}
