/* The keys of a process that writes, for all stores. */
#include <openssl/evp.h>
#include <string.h>

#include "base/rand.h"
#include "base/uuid.h"
#include "store/store.h"

enum status store_identity_make(struct store_identity *ret_identity, struct err *err)
{
    struct store_identity identity;
    enum status status = rand_bytes(&identity, sizeof identity, err);
    if (status == OK) {
        uuid_v4(identity.chain_id);
        *ret_identity = identity;
    }
    mem_wipe(&identity, sizeof identity);
    return status;
}

enum status store_identity_public(
    const struct store_identity *identity, unsigned char ret_key[32], struct err *err)
{
    unsigned char key[32];
    size_t size = sizeof key;
    EVP_PKEY *pair = EVP_PKEY_new_raw_private_key(
        EVP_PKEY_ED25519, NULL, identity->signing_seed, sizeof identity->signing_seed);
    bool ok =
        pair != NULL && EVP_PKEY_get_raw_public_key(pair, key, &size) == 1 && size == sizeof key;
    EVP_PKEY_free(pair); /* clears the private half */
    if (!ok) {
        return err_set(
            err, E_UNAVAILABLE, "the crypto library cannot make a public key with Ed25519");
    }
    memcpy(ret_key, key, sizeof key);
    return OK;
}
