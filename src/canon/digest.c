#include "canon/digest.h"

#include <openssl/evp.h>

#include "base/check.h"

void digest_sha256_2(
    const void *a, size_t a_size, const void *b, size_t b_size, struct digest *ret_digest)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    ASSERT(context != NULL);
    int done = EVP_DigestInit_ex(context, EVP_sha256(), NULL);
    done = done && EVP_DigestUpdate(context, a, a_size);
    done = done && EVP_DigestUpdate(context, b, b_size);
    done = done && EVP_DigestFinal_ex(context, ret_digest->bytes, NULL);
    ASSERT(done == 1);
    EVP_MD_CTX_free(context);
}

void digest_sha256(const void *data, size_t size, struct digest *ret_digest)
{
    digest_sha256_2(data, size, NULL, 0, ret_digest);
}
