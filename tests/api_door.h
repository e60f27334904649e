/*
 * api_door: one door for each test of a program, opened and closed around it.
 *
 * For cmocka_unit_test_setup_teardown(test, open_door, close_door).
 */
#ifndef ONCE_TESTS_API_DOOR_H
#define ONCE_TESTS_API_DOOR_H

#include "api_drive.h"

static struct house house;

static int open_door(void **state)
{
    struct api_policy policy = house_policy();
    (void)state;
    return house_open(&house, &mem_libc, &policy) == OK ? 0 : -1;
}

static int close_door(void **state)
{
    (void)state;
    house_close(&house);
    return 0;
}

#endif
