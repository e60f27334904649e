#include "http/address.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include "base/macros.h"

struct address_range {
    unsigned char prefix[4];
    unsigned bits;
};

/* RFC 6890 and its updates: addresses that are not globally reachable. */
static const struct address_range special_v4[] = {
    {{0}, 8},             /* this host */
    {{10}, 8},            /* private, RFC 1918 */
    {{100, 64}, 10},      /* shared, of carriers, RFC 6598 */
    {{127}, 8},           /* loopback */
    {{169, 254}, 16},     /* link-local: where clouds answer with credentials */
    {{172, 16}, 12},      /* private */
    {{192, 0, 0}, 24},    /* protocol assignments */
    {{192, 0, 2}, 24},    /* documentation */
    {{192, 168}, 16},     /* private */
    {{198, 18}, 15},      /* benchmarks */
    {{198, 51, 100}, 24}, /* documentation */
    {{203, 0, 113}, 24},  /* documentation */
    {{224}, 3},           /* multicast, reserved, broadcast */
};

static bool in_range(const unsigned char *address, const unsigned char *prefix, unsigned bits)
{
    unsigned whole = bits / 8;
    unsigned rest = bits % 8;
    return memcmp(address, prefix, whole) == 0 &&
           (rest == 0 || (address[whole] >> (8 - rest)) == (prefix[whole] >> (8 - rest)));
}

static bool is_public_v4(const unsigned char *address)
{
    for (size_t i = 0; i < COUNT(special_v4); i++) {
        if (in_range(address, special_v4[i].prefix, special_v4[i].bits)) {
            return false;
        }
    }
    return true;
}

/* Global unicast is 2000::/3. An address that embeds an IPv4 address is judged by that one: 6to4,
 * and 64:ff9b::/96, which is outside 2000::/3. */
static bool is_public_v6(const unsigned char *address)
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const unsigned char nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    static const unsigned char documentation[4] = {0x20, 0x01, 0x0d, 0xb8};
    static const unsigned char assigned[3] = {0x20, 0x01, 0x00}; /* Teredo and the like: /23 */
    static const unsigned char six_to_four[2] = {0x20, 0x02};
    if (memcmp(address, mapped, sizeof mapped) == 0 || memcmp(address, nat64, sizeof nat64) == 0) {
        return is_public_v4(address + 12);
    }
    if (in_range(address, six_to_four, 16)) {
        return is_public_v4(address + 2);
    }
    return (address[0] & 0xe0) == 0x20 && !in_range(address, documentation, 32) &&
           !in_range(address, assigned, 23);
}

static const unsigned char *bytes_v4(const struct sockaddr *address)
{
    return (const unsigned char *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

static const unsigned char *bytes_v6(const struct sockaddr *address)
{
    return (const unsigned char *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
}

bool address_is_public(const struct sockaddr *address)
{
    return address->sa_family == AF_INET    ? is_public_v4(bytes_v4(address))
           : address->sa_family == AF_INET6 ? is_public_v6(bytes_v6(address))
                                            : false;
}

bool address_is_loopback(const struct sockaddr *address)
{
    static const unsigned char one[16] = {[15] = 1};
    return address->sa_family == AF_INET    ? bytes_v4(address)[0] == 127
           : address->sa_family == AF_INET6 ? memcmp(bytes_v6(address), one, sizeof one) == 0
                                            : false;
}
