/*
 * place: where in a configuration file something is.
 */
#ifndef ONCE_CONFIG_PLACE_H
#define ONCE_CONFIG_PLACE_H

/* Where in the file; line 0: not from it. */
struct config_place {
    unsigned line;
    unsigned column;
};

#endif
