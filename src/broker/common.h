/*
 * common: what the modules of brokers have in common: reading a URL, memory for a source, and
 * putting a message together from its fields.
 *
 *     SCHEME://[USER[:PASSWORD]@]HOST[:PORT],…/PATH/…[?OPTION=VALUE&…]
 *
 * Promises:  no error text contains a user or a password.
 * Ownership: a URL is the caller's memory, and its holder wipes it.
 */
#ifndef ONCE_BROKER_COMMON_H
#define ONCE_BROKER_COMMON_H

#include "base/arena.h"
#include "broker/broker.h"

enum {
    BROKER_FIELDS_MAX = 64,      /* of a message */
    BROKER_URL_PARTS_MAX = 3,    /* of a path */
    BROKER_TEXT_BYTES_MAX = 256, /* of one part of a URL, with its end */
    BROKER_PORT_TEXT_BYTES = 8,
    BROKER_TAKE_BYTES_MAX = 32 << 20, /* bodies of one take: the rest is taken next time */
};

struct broker_url {
    char scheme[24];
    char user[BROKER_TEXT_BYTES_MAX];
    char password[BROKER_TEXT_BYTES_MAX];
    char hosts[BROKER_TEXT_BYTES_MAX * 2]; /* as written, separated by commas */
    char path[BROKER_URL_PARTS_MAX][BROKER_TEXT_BYTES_MAX];
    size_t path_count;
};

/* An option that a kind of broker has. */
struct broker_option {
    const char *name;
    char *text;  /* where its text goes, BROKER_TEXT_BYTES_MAX; or NULL … */
    int64_t *ms; /* … and where its duration goes */
    int64_t ms_min;
    int64_t ms_max;
};

/* E_INVALID: the text names the part that is wrong. */
enum status broker_url_read(const char *text, struct broker_url *ret_url,
    const struct broker_option *options, size_t option_count, struct err *err) MUST_CHECK;
/* One host, by number; false: there is none. The port is empty if the URL has none. */
bool broker_url_host(const struct broker_url *url, size_t number,
    char ret_host[BROKER_TEXT_BYTES_MAX], char ret_port[BROKER_PORT_TEXT_BYTES]);
/* Percent-decoded, and ended by '\0'. False: it does not fit, or is empty. */
bool broker_decode(struct slice text, char *ret_text, size_t size);

/* Checks that the files of a certificate and its key are both given, or neither. E_INVALID. */
enum status broker_pair(
    const struct broker_url *url, const char *cert, const char *key, struct err *err) MUST_CHECK;

/* Memory for what a module knows of one source, zeroed, and then read from its URL. ret_source
 * NULL: only whether the URL is valid. Statuses of read; E_NOMEM. It is wiped when it is freed: it
 * has a password. */
enum status broker_source_read(size_t bytes,
    enum status (*read)(void *source, const char *url, struct err *err), const char *url,
    void **ret_source, struct err *err) MUST_CHECK;
void broker_source_free(void *source, size_t bytes);
/* A descriptor that a library's thread makes readable when something has arrived. E_NOMEM. */
enum status broker_arrivals(int *ret_fd, struct err *err) MUST_CHECK;
void broker_arrivals_clear(int fd);

/* The functions of a module have the same names in each. */
#define BROKER_FUNCTIONS                                                                           \
    .check = check, .open = open_source, .connect = connect_source, .take = take,                  \
    .acknowledge = acknowledge, .park = park, .extend = extend, .lag = lag, .publish = publish,    \
    .close = close_source

/* Add a field to a message whose `fields` has room for BROKER_FIELDS_MAX. The broker's prefix of
 * CloudEvents' attributes becomes "ce-"; the names are in the arena. False: out of memory. */
bool broker_put_field(struct broker_message *message, struct broker_field *fields,
    const char *prefix, struct slice name, struct slice value, struct arena *arena);
/* All fields have been added: sets the content mode of CloudEvents' bindings. */
void broker_end_fields(struct broker_message *message);

/* Whether a descriptor became readable before wake_fd did or the time was over; either may be
 * -1. */
bool broker_wait(int fd, int wake_fd, int64_t wait_ms);
/* clock_nanos in this many milliseconds; and how many milliseconds are left until then. */
uint64_t broker_until(int64_t ms);
int64_t broker_left_ms(uint64_t until_ns);

#endif
