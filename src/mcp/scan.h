/*
 * scan: the members of a JSON object, or the items of an array, as slices of the text.
 *
 * For messages that are passed on byte for byte, also when the strict reader (canon/json.h) refuses
 * what is inside them, such as half of a surrogate pair in the result of a tool.
 *
 * Promises:  every slice lies in the text. On JSON the members come in the order of the document;
 *            on anything else the scan ends early and says so.
 * Does not:  check what is inside a value, or find doubled members.
 */
#ifndef ONCE_MCP_SCAN_H
#define ONCE_MCP_SCAN_H

#include "base/slice.h"

/* A scan over the inside of a container. */
struct mcp_scan {
    const char *at;  /* the next byte to read */
    const char *end; /* of the text */
    char close;      /* the bracket that ends it */
    bool is_first;   /* nothing was found yet, so no comma precedes */
    bool is_over;    /* its closing bracket was seen */
    bool is_broken;  /* it is not JSON: what was found must not be used */
};

/* One member, or one item, which has no name. */
struct mcp_scan_item {
    struct slice name;  /* without quotes; escapes are not decoded */
    struct slice value; /* with its quotes or brackets */
    struct slice whole; /* from the name's quote to the end of the value */
};

/* False: the text is not an object ('{') or array ('['). White space around it is fine; anything
 * else after it breaks the scan at its end. */
bool scan_begin(struct mcp_scan *scan, struct slice text, char open);
/* False: the end, or broken. */
bool scan_next(struct mcp_scan *scan, struct mcp_scan_item *ret_item);
/* The value of the last member of that name, which has no escapes; empty: absent, not an object, or
 * broken. */
struct slice scan_find(struct slice object, const char *name);

#endif
