/*
 * body_vault: the vault of a store's bodies, from the settings of the server that sends them.
 *
 * Processes that open one store need the same key: it is that of `secrets.key_file`, else the one
 * in the data directory (`body.key`), which is made when it is absent. A store in memory has a key
 * that ends with the process.
 */
#ifndef ONCE_ENVELOPE_BODY_VAULT_H
#define ONCE_ENVELOPE_BODY_VAULT_H

#include "base/vault.h"
#include "config/config.h"

/* mem NULL: the C library's. Statuses are those of vault_new. */
enum status body_vault_new(const struct config *config, const char *store_url,
    const struct mem *mem, struct vault **ret_vault, struct err *err) MUST_CHECK;

#endif
