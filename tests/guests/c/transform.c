// Adds up the cents of an invoice's lines.
#include "areev.h"

static const char KEY[] = "\"cents\":";
enum { KEY_LENGTH = sizeof KEY - 1 };

static char output[80];

static char *put(char *at, const char *text) {
    while (*text) *at++ = *text++;
    return at;
}

static char *put_number(char *at, unsigned long long number) {
    char digits[20];
    u32 count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count) *at++ = digits[--count];
    return at;
}

static int is_key(const u8 *at) {
    for (u32 i = 0; i < KEY_LENGTH; i++)
        if (at[i] != KEY[i]) return 0;
    return 1;
}

GUEST(run) void run(const u8 *input, u32 length) {
    const u8 *end = input + length;
    unsigned long long total = 0, lines = 0;
    for (const u8 *at = input; at + KEY_LENGTH < end; at++) {
        if (!is_key(at)) continue;
        unsigned long long cents = 0;
        for (const u8 *digit = at + KEY_LENGTH; digit < end && *digit >= '0' && *digit <= '9'; digit++)
            cents = cents * 10 + (*digit - '0');
        total += cents;
        lines++;
    }
    char *at = put_number(put(output, "{\"total_cents\":"), total);
    at = put(put_number(put(at, ",\"lines\":"), lines), "}");
    emit(output, (u32)(at - output));
}
