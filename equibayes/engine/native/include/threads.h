// Work in blocks on the threads of a pool, which look for work for a moment and then sleep.
//
// What a block is must follow from the problem alone, never from the number of threads: then the same sums are made
// with any number of them.
#pragma once

namespace equibayes {

// threads of the calls below, the calling one included
void set_threads(int count);

using Body = void (*)(void* context, long index);
void run_blocks(long count, Body body, void* context);
void run_short_blocks(long count, Body body, void* context);

// body(index) for index = 0 … count − 1, in any order and by any thread; returns when all are done.  Calls may be
// nested: the calling thread works itself, and idle ones help.
template <class F>
void parallel(long count, F&& body) {
    run_blocks(count, [](void* context, long index) { (*(decltype(&body))context)(index); }, (void*)&body);
}

// The same for blocks that may be so short that others had better not be woken for them: the calling thread times the
// first one and decides.
template <class F>
void parallel_if_long(long count, F&& body) {
    run_short_blocks(count, [](void* context, long index) { (*(decltype(&body))context)(index); }, (void*)&body);
}

}  // namespace equibayes
