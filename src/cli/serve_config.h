/*
 * serve_config: the effective configuration of a server, and its faults on paper.
 *
 * Flags win over ONCE_* variables, these over the file, this over the defaults.
 */
#ifndef ONCE_CLI_SERVE_CONFIG_H
#define ONCE_CLI_SERVE_CONFIG_H

#include "cli/cli.h"
#include "config/config.h"

/* Read one file alone, for once check. *ret_config is NULL when there was no memory or no file.
 * 0, or an exit code; faults say more, or the message was written when there are none. */
int serve_config_file(
    const char *path, struct config **ret_config, struct config_faults *faults) MUST_CHECK;
/* All of them together, for once serve and once gateway. The same. */
int serve_config(
    struct cli *cli, struct config **ret_config, struct config_faults *faults) MUST_CHECK;

/* All faults as text. path is what the file is called; NULL: there is none. */
void serve_faults_put(struct buf *out, const char *path, const struct config_faults *faults);
/* To standard error. */
void serve_faults_say(const char *path, const struct config_faults *faults);
/* What a good configuration comes to, on standard output, or the faults with --json. */
int serve_config_show(struct cli *cli, const char *path, const struct config *config,
    const struct config_faults *faults);

struct jsonw;
/* What it comes to for the gateway: lines on standard output, or a member "gateway". Nothing when
 * there is none. */
void serve_gateway_text(const struct config_gateway *gateway);
void serve_gateway_json(struct jsonw *json, const struct config_gateway *gateway);

#endif
