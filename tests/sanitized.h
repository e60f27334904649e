/*
 * sanitized: whether this build has AddressSanitizer or ThreadSanitizer.
 *
 * Long computations run whole in the release build (RELEASE_TESTS in tools/test) and in part here,
 * where each step takes ten times as long: a wrong answer shows in either, wrong memory only here.
 */
#ifndef ONCE_TESTS_SANITIZED_H
#define ONCE_TESTS_SANITIZED_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#if (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)) && !defined(IS_SANITIZED)
#define IS_SANITIZED 1
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

#endif
