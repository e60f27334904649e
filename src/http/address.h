/*
 * address: whether an IP address is public. Pure.
 *
 * Promises:  an address that carries an IPv4 address (mapped, NAT64, 6to4) is judged by that
 *            address, so that no spelling of an internal address counts as public.
 */
#ifndef ONCE_HTTP_ADDRESS_H
#define ONCE_HTTP_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* Not loopback, private, link-local, multicast or otherwise special (RFC 6890). */
bool address_is_public(const struct sockaddr *address);
bool address_is_loopback(const struct sockaddr *address);

#endif
