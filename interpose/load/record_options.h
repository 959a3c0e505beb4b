/*
 * The recorder's errors and warnings about variables, for the toolkit, before a program runs.
 *
 * The toolkit reads this file too. It ignores preprocessor directives.
 */
#ifndef TT_LOAD_RECORD_OPTIONS_H
#define TT_LOAD_RECORD_OPTIONS_H

/* NULL if the recorder accepts this environment; as_option as for options_read_from. */
const char *tt_options_fault(char *const *environment, const unsigned char *as_option);

/* NULL if the variable can have this value. */
const char *tt_option_fault(const char *name, const char *value);

/* Warnings about unknown variables in the environment last checked; NULL after the last one. */
const char *tt_options_unknown(unsigned number);

/* The rank of this process as process.json has it, or null. Valid until the next call. */
const char *tt_rank(void);

#endif
