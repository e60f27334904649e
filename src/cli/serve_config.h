/*
 * serve_config: the effective configuration of a server, and its faults on paper.
 *
 * Flags win over ONCE_* variables, these over the file, this over the defaults.
 */
#ifndef ONCE_CLI_SERVE_CONFIG_H
#define ONCE_CLI_SERVE_CONFIG_H

#include "cli/cli.h"
#include "config/cases.h"
#include "config/config.h"

/* One file alone, for once check. */
struct serve_file {
    struct config *config;       /* NULL when there was no memory; the caller frees it */
    struct config_faults faults; /* in its memory */
    bool is_policy;              /* it is a policy file and no configuration */
};
/* 0, or an exit code; faults say more, or the message was written when there are no faults. */
int serve_config_file(const char *path, struct serve_file *ret_file) MUST_CHECK;
/* Read a policy file over a configuration, which is not checked yet. Its faults have its name. The
 * same. */
int serve_config_policy(
    const char *path, struct config *config, struct config_faults *faults) MUST_CHECK;
/* Read the cases of once policy test into a configuration's memory. The same. */
int serve_config_cases(const char *path, struct config *config, struct config_cases *ret_cases,
    struct config_faults *faults) MUST_CHECK;
/* All of them together, for once serve, once gateway and once policy, the policy file of --policy
 * too where the command has that option. The same. */
int serve_config(
    struct cli *cli, struct config **ret_config, struct config_faults *faults) MUST_CHECK;

/* All faults as text. path is what the file is called; NULL: no file. */
void serve_faults_put(struct buf *out, const char *path, const struct config_faults *faults);
/* To standard error. */
void serve_faults_say(const char *path, const struct config_faults *faults);
/* What a good configuration comes to, on standard output, or the faults with --json. */
int serve_config_show(struct cli *cli, const char *path, const struct config *config,
    const struct config_faults *faults);

/* What each line of a policy file means here, or its faults with --json. */
int serve_policy_show(struct cli *cli, const char *path, const struct serve_file *file);

struct jsonw;
/* The member "faults", or "warnings". */
void serve_faults_json(struct jsonw *json, const char *name, const struct config_faults *faults);
/* What a reader of a route's settings has to know: what an answer of 500 means, whom keys belong
 * to, and what weakens "one effect a key". One sentence each; NULL: there is nothing to say. */
enum { SERVE_GATEWAY_FACTS = 4 };
const char *serve_gateway_fact(const struct config_route *route, size_t which);
/* The facts of many items on paper: each once, with how many have it unless all do. */
struct serve_facts {
    const char *many; /* "routes" */
    size_t count;
    size_t fact_count; /* of each */
    const char *(*fact)(const void *context, size_t number, size_t which);
    const void *context;
};
struct buf;
void serve_facts_put(struct buf *out, const struct serve_facts *facts);
/* What it comes to for the gateway, and what is not quite as a policy file says: lines on standard
 * output, or a member "gateway". Nothing without a gateway. */
void serve_gateway_text(const struct config *config);
void serve_gateway_json(struct jsonw *json, const struct config *config);
/* The same for connectors, effects, commands and sources, and what happens on 500 or no answer:
 * lines on standard output, or a member of each. */
void serve_work_text(const struct config *config);
void serve_work_json(struct jsonw *json, const struct config *config);
/* For the start lines: how many there are, and each fact once. */
void serve_work_lines(struct buf *out, const struct config *config);

#endif
