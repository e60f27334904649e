#include "effect/credential.h"

#include <stdlib.h>

#include "base/base64.h"
#include "base/secret.h"
#include "http/chars.h"

static enum status secret_take(
    const struct config_secret *secret, const char *connector, struct buf *out, struct err *err)
{
    if (secret->file != NULL) {
        enum status status = secret_read("credential file", secret->file, out, err);
        out->len = status == OK ? secret_line(buf_view(out)).len : out->len;
        return status;
    }
    const char *value = secret->env == NULL ? NULL : getenv(secret->env);
    if (value == NULL) {
        return err_set(err, E_INVALID, "connector '%s': the variable %s is not set", connector,
            secret->env == NULL ? "of its credential" : secret->env);
    }
    buf_str(out, value);
    return buf_status(out) == OK ? OK : err_set(err, buf_status(out), "out of memory");
}

static bool has(const struct config_secret *secret)
{
    return secret->file != NULL || secret->env != NULL;
}

static void put_basic(struct buf *out, struct slice plain)
{
    buf_str(out, "Basic ");
    char *room = buf_extend(out, BASE64_TEXT_BYTES(plain.len));
    if (room != NULL) {
        size_t len = (size_t)(base64_put(room, plain.data, plain.len, BASE64_PADDED) - room);
        out->len = (size_t)(room - out->data) + len;
    }
}

enum status credential_read(const struct config_connector *connector, const struct mem *mem,
    struct buf *out, struct err *err)
{
    const struct config_effect_auth *auth = &connector->auth;
    const struct config_secret *secret = has(&auth->bearer)  ? &auth->bearer
                                         : has(&auth->basic) ? &auth->basic
                                                             : &auth->header_value;
    struct buf plain;
    if (!has(secret)) {
        return OK;
    }
    buf_init(&plain, mem, CREDENTIAL_BYTES_MAX);
    enum status status = secret_take(secret, connector->name, &plain, err);
    for (size_t i = 0; status == OK && i < plain.len; i++) {
        if (!http_is(plain.data[i], HTTP_VALUE)) {
            status = err_set(err, E_INVALID,
                "the credential of connector '%s' is not one line of "
                "text",
                connector->name);
        }
    }
    if (status == OK && plain.len == 0) {
        status =
            err_set(err, E_INVALID, "the credential of connector '%s' is empty", connector->name);
    }
    if (status == OK && secret == &auth->basic) {
        put_basic(out, buf_view(&plain));
    } else if (status == OK) {
        buf_str(out, secret == &auth->bearer ? "Bearer " : "");
        buf_slice(out, buf_view(&plain));
    }
    secret_release(&plain);
    return status == OK ? buf_status(out) : status;
}
