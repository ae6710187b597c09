/* Bears the loss of a mapped file. When somebody cuts the file off, the pages behind its new
 * end are gone, and touching one is SIGBUS, whose default is the end of the process.
 *
 * The handler puts a page of zeros, private to this process, in the place of the lost one and
 * marks the mapping as lost. The access goes on as if nothing had happened; the decision that
 * it was part of looks at the mark before it answers, and is an error instead. So a decision
 * costs one load more, and no system call. Locks that the thread holds are put back as they
 * were: see _mapped.h.
 *
 * Other faults are passed on to the handler that was there before. */
#ifndef PENSTOCK_GUARD_H
#define PENSTOCK_GUARD_H

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "_mapped.h"

typedef struct Guard {
    uintptr_t base;
    size_t size;         /* 0: free for the next mapping */
    volatile int lost;
    struct Guard *next;  /* never changes; guards are never freed, as a handler may be reading */
} Guard;

static Guard *guards;
static struct sigaction before_us;
static uintptr_t page_size;
static __thread volatile int passing;  /* whoever was before us may raise it again, to us */

static void pass_on(int number, siginfo_t *info, void *context) {
    int handled = (before_us.sa_flags & SA_SIGINFO)
               || (before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN);
    if (passing || !handled) {
        signal(number, SIG_DFL);
        if (info->si_code <= 0) raise(number);  /* sent by somebody: it does not come again */
        return;
    }
    passing = 1;
    if (before_us.sa_flags & SA_SIGINFO)
        before_us.sa_sigaction(number, info, context);
    else
        before_us.sa_handler(number);
    passing = 0;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr;
    Guard *guard;
    if (info->si_code > 0) {
        for (guard = __atomic_load_n(&guards, __ATOMIC_ACQUIRE); guard; guard = guard->next) {
            size_t size = __atomic_load_n(&guard->size, __ATOMIC_ACQUIRE);
            if (at < guard->base || at - guard->base >= size) continue;
            guard->lost = 1;
            if (mmap((void *)(at & ~(page_size - 1)), page_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
                restore_held(at & ~(page_size - 1), page_size);
                return;
            }
        }
    }
    pass_on(number, info, context);
}

/* Under the GIL, like the next two. Again for each mapping: another handler may have come. */
static int install_guard(void) {
    struct sigaction now, ours;
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &now)) return -1;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error) return 0;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    before_us = now;
    return sigaction(SIGBUS, &ours, NULL);
}

static Guard *new_guard(void *base, size_t size) {
    Guard *guard;
    if (install_guard()) return NULL;
    for (guard = guards; guard && guard->size; guard = guard->next);
    if (!guard) {
        guard = calloc(1, sizeof *guard);
        if (!guard) return NULL;
        guard->next = guards;
        __atomic_store_n(&guards, guard, __ATOMIC_RELEASE);
    }
    guard->base = (uintptr_t)base;
    guard->lost = 0;
    __atomic_store_n(&guard->size, size, __ATOMIC_RELEASE);
    return guard;
}

static void free_guard(Guard *guard) { __atomic_store_n(&guard->size, 0, __ATOMIC_RELEASE); }

#endif
