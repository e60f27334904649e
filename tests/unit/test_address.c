/* Which addresses a connector's name may lead to, a row each. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/macros.h"
#include "check_c.h"
#include "http/address.h"

union any {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static union any read_address(const char *text)
{
    union any address;
    memset(&address, 0, sizeof address);
    if (inet_pton(AF_INET, text, &address.v4.sin_addr) == 1) {
        address.v4.sin_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &address.v6.sin6_addr), 1);
        address.v6.sin6_family = AF_INET6;
    }
    return address;
}

static void an_address_is_public_or_it_is_not(void **state)
{
    static const struct {
        const char *text;
        bool is_public;
        bool is_loopback;
    } rows[] = {
        {"8.8.8.8", true, false},
        {"1.0.0.1", true, false},
        {"9.255.255.255", true, false},
        {"11.0.0.0", true, false},
        {"100.63.255.255", true, false},
        {"100.128.0.0", true, false},
        {"172.15.255.255", true, false},
        {"172.32.0.0", true, false},
        {"198.17.255.255", true, false},
        {"198.20.0.0", true, false},
        {"223.255.255.255", true, false},
        {"0.0.0.0", false, false},
        {"10.0.0.1", false, false},
        {"100.64.0.1", false, false},
        {"100.127.255.255", false, false},
        {"127.0.0.1", false, true},
        {"127.255.255.254", false, true},
        {"169.254.169.254", false, false},
        {"172.16.0.1", false, false},
        {"172.31.255.255", false, false},
        {"192.168.1.1", false, false},
        {"198.18.0.1", false, false},
        {"198.19.255.255", false, false},
        {"224.0.0.1", false, false},
        {"255.255.255.255", false, false},
        {"2606:4700::1111", true, false},
        {"::1", false, true},
        {"::", false, false},
        {"fe80::1", false, false},
        {"fc00::1", false, false},
        {"fd12:3456::1", false, false},
        {"ff02::1", false, false},
        {"2001:db8::1", false, false},
        {"2001::1", false, false},
        {"::ffff:8.8.8.8", true, false},
        {"::ffff:127.0.0.1", false, false},
        {"::ffff:169.254.169.254", false, false},
        {"64:ff9b::8.8.8.8", true, false},
        {"64:ff9b::10.0.0.1", false, false},
        {"2002:0808:0808::1", true, false},
        {"2002:0a00:0001::1", false, false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        union any address = read_address(rows[i].text);
        if (address_is_public(&address.any) != rows[i].is_public ||
            address_is_loopback(&address.any) != rows[i].is_loopback) {
            fail_msg("%s", rows[i].text);
        }
    }
}

static void what_is_not_an_ip_address_is_not_public(void **state)
{
    union any address = {.any.sa_family = AF_UNIX};
    (void)state;
    assert_false(address_is_public(&address.any));
    assert_false(address_is_loopback(&address.any));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_address_is_public_or_it_is_not),
        TEST(what_is_not_an_ip_address_is_not_public),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
