/*
 * serve_config: the effective configuration of a server, and the report of its faults.
 *
 * Flags override ONCE_* variables, variables override the file, and the file overrides the
 * defaults.
 */
#ifndef ONCE_CLI_SERVE_CONFIG_H
#define ONCE_CLI_SERVE_CONFIG_H

#include "cli/cli.h"
#include "config/cases.h"
#include "config/config.h"

/* A single file, for once check. */
struct serve_file {
    struct config *config;       /* NULL: out of memory; the caller frees it */
    struct config_faults faults; /* in its memory */
    bool is_policy;              /* it is a policy file, not a configuration */
};
/* 0, or an exit code; faults say more, or the message was written if there are no faults. */
int serve_config_file(const char *path, struct serve_file *ret_file) MUST_CHECK;
/* Apply a policy file to a configuration that has not been checked yet. Its faults carry the file's
 * name. The same result. */
int serve_config_policy(
    const char *path, struct config *config, struct config_faults *faults) MUST_CHECK;
/* Read the cases of once policy test into a configuration's memory. The same result. */
int serve_config_cases(const char *path, struct config *config, struct config_cases *ret_cases,
    struct config_faults *faults) MUST_CHECK;
/* The whole configuration, for once serve, once gateway and once policy, including the policy file
 * of --policy if the command has that option. The same result. */
int serve_config(
    struct cli *cli, struct config **ret_config, struct config_faults *faults) MUST_CHECK;

/* All faults as text. path is the name of the file; NULL: no file. */
void serve_faults_put(struct buf *out, const char *path, const struct config_faults *faults);
/* Print them to standard error. */
void serve_faults_say(const char *path, const struct config_faults *faults);
/* Print what a valid configuration means; with --json also the faults of an invalid one. */
int serve_config_show(struct cli *cli, const char *path, const struct config *config,
    const struct config_faults *faults);

/* Print what each line of a policy file means here; with --json also its faults. */
int serve_policy_show(struct cli *cli, const char *path, const struct serve_file *file);

struct jsonw;
/* The member "faults", or "warnings". */
void serve_faults_json(struct jsonw *json, const char *name, const struct config_faults *faults);
/* Facts that a reader of a route's settings must know: what an answer of 500 means, whom keys
 * belong to, and what weakens "one effect a key". One sentence each; NULL: none. */
enum { SERVE_GATEWAY_FACTS = 4 };
const char *serve_gateway_fact(const struct config_route *route, size_t which);
/* The facts of many items: each is printed once, with the number of items it applies to unless it
 * applies to all. */
struct serve_facts {
    const char *many; /* "routes" */
    size_t count;
    size_t fact_count; /* of each item */
    const char *(*fact)(const void *context, size_t number, size_t which);
    const void *context;
};
struct buf;
void serve_facts_put(struct buf *out, const struct serve_facts *facts);
/* What the configuration means for the gateway, and where it differs from a policy file: lines on
 * standard output, or a member "gateway". Nothing without a gateway. */
void serve_gateway_text(const struct config *config);
void serve_gateway_json(struct jsonw *json, const struct config *config);
/* The same for connectors, effects, commands and sources, and what happens on 500 or no answer:
 * lines on standard output, or a member for each. */
void serve_work_text(const struct config *config);
void serve_work_json(struct jsonw *json, const struct config *config);
/* For the start lines: how many there are, and each fact once. */
void serve_work_lines(struct buf *out, const struct config *config);

#endif
