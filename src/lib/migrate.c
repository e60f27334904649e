#include "lib/migrate.h"

#include <string.h>

#include "store/store.h"

/* The scheme decides; store_url_check reports whether this build supports it. */
static enum status check_url(const char *url, struct err *err)
{
    enum status status = store_url_check(url, err);
    if (status == OK && strncmp(url, "postgres:", 9) != 0 && strncmp(url, "postgresql:", 11) != 0) {
        (void)err_set(err, E_INVALID, "the store '%s' has no schema to migrate", url);
        err_hint(err, "only a PostgreSQL store has: --store postgres://HOST/DATABASE");
        status = E_INVALID;
    }
    return status;
}

#ifdef ONCE_POSTGRES
#include "store/postgres/postgres.h"

/* Converts the plan to the store's types. */
static enum status translate(const struct migrate_plan *plan, struct postgres_migration *ret,
    struct postgres_grant **ret_grants, struct err *err)
{
    struct postgres_grant *grants =
        mem_zalloc(&mem_libc, plan->role_count + 1, sizeof(struct postgres_grant));
    if (grants == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < plan->role_count; i++) {
        static const enum postgres_grant_kind kinds[] = {
            [MIGRATE_RUN] = POSTGRES_GRANT_PROCESS,
            [MIGRATE_READ] = POSTGRES_GRANT_READ,
            [MIGRATE_FUNCTIONS] = POSTGRES_GRANT_FUNCTIONS,
        };
        grants[i] = (struct postgres_grant){.role = plan->roles[i].name,
            .kind = kinds[plan->roles[i].right],
            .tenant = plan->roles[i].tenant};
    }
    *ret = (struct postgres_migration){.grants = grants, .grant_count = plan->role_count};
    *ret_grants = grants;
    return OK;
}

enum status migrate_store(
    const struct migrate_plan *plan, struct migrate_result *ret_result, struct err *err)
{
    struct postgres_migration migration;
    struct postgres_grant *grants = NULL;
    enum status status = check_url(plan->url, err);
    status = status == OK ? translate(plan, &migration, &grants, err) : status;
    status = status == OK ? postgres_migrate(plan->url, &migration, err) : status;
    if (status == OK) {
        *ret_result = (struct migrate_result){
            .version_before = migration.version_before, .version_after = migration.version_after};
    }
    mem_free(&mem_libc, grants);
    return status;
}

enum status migrate_print(const struct migrate_plan *plan, struct buf *out, struct err *err)
{
    struct postgres_migration migration;
    struct postgres_grant *grants = NULL;
    enum status status = check_url(plan->url, err);
    status = status == OK ? translate(plan, &migration, &grants, err) : status;
    status = status == OK ? postgres_migrate_print(plan->url, &migration, out, err) : status;
    mem_free(&mem_libc, grants);
    return status;
}

#else

enum status migrate_store(
    const struct migrate_plan *plan, struct migrate_result *ret_result, struct err *err)
{
    (void)ret_result;
    return check_url(plan->url, err); /* no accepted URL has a schema in this build */
}

enum status migrate_print(const struct migrate_plan *plan, struct buf *out, struct err *err)
{
    (void)out;
    return check_url(plan->url, err);
}

#endif
