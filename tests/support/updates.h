/* Update rules for tests, updates by them, and what these compute, in plain C.
 * Programs link $<TARGET_OBJECTS:test-updates>. */
#ifndef TEST_UPDATES_H
#define TEST_UPDATES_H

#include <dlcore/rule.h>

/* The rules of update_rules.h, with 0, 1, 2 and 4 slots. */
enum { TEST_PLAIN, TEST_MOMENTUM, TEST_MOMENTS, TEST_FOUR, TEST_RULES };
extern const dlc_rule *const test_rules[TEST_RULES];

/* An update in which every hyperparameter matters. */
dlc_update test_update(int rule);

/* An update that subtracts the gradient, by TEST_PLAIN. */
dlc_update test_subtraction(void);

/* Updates element by element as <dlcore/rule.h> defines it. The pointers of `update`
 * are to host memory. */
void test_update_reference(const dlc_update *update, size_t n, const float *gradient,
                           float *const *slots, float *weight);

#endif
