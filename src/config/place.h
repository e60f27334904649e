/*
 * place: a position in a configuration file.
 */
#ifndef ONCE_CONFIG_PLACE_H
#define ONCE_CONFIG_PLACE_H

/* A position; line 0: not from a file. */
struct config_place {
    unsigned line;
    unsigned column;
};

#endif
