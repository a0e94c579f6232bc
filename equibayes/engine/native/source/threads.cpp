#include "threads.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "vector.h"

namespace equibayes {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::microseconds;
constexpr Microseconds WORTH_WAKING{50};  // a thread that sleeps
constexpr Microseconds WORTH_SHARING{10};  // with one that looks for work
constexpr Microseconds PATIENCE{100};      // of a thread that looks for work before it sleeps

// Looks until something is done, but not for long; false if it was not.
template <class F> static bool look(Microseconds patience, F&& done) {
    for (const auto end = Clock::now() + patience; Clock::now() < end;)
        for (int i = 0; i < 32; ++i) {
            if (done()) return true;
#if defined(__SSE2__)
            __builtin_ia32_pause();
#elif defined(__aarch64__)
            asm volatile("yield");
#endif
        }
    return done();
}

// Blocks that lie together, for one thread in the first place: what it has in its cache serves it again.
struct alignas(64) Region {
    std::atomic<long> next;
    long end;
};
constexpr int MOST_REGIONS = 64;

struct Job {
    Body body;
    void* context;
    int count;  // of regions
    Region regions[MOST_REGIONS];
    std::atomic<int> helpers{0};  // threads of the pool that are at work on it

    Job(Body body, void* context, long first, long end, int threads) : body(body), context(context) {
        count = int(std::min<long>({threads, end - first, MOST_REGIONS}));
        for (int r = 0; r < count; ++r) {
            regions[r].next = first + (end - first) * r / count;
            regions[r].end = first + (end - first) * (r + 1) / count;
        }
    }
    bool unfinished() const {
        for (int r = 0; r < count; ++r)
            if (regions[r].next.load(std::memory_order_relaxed) < regions[r].end) return true;
        return false;
    }
    // the region of this thread, then what is left of the others
    void work(int thread) {
        for (int r = 0; r < count; ++r) {
            Region& region = regions[(thread + r) % count];
            for (long i; (i = region.next.fetch_add(1, std::memory_order_relaxed)) < region.end;) body(context, i);
        }
    }
};

static thread_local int this_thread = 0;  // from 1 in the pool

struct Pool {
    std::mutex mutex;
    std::condition_variable work, finished;
    std::vector<Job*> jobs;  // the newest, which others wait for, last
    int workers = 0, idle = 0;  // idle: asleep
    std::atomic<int> allowed{0}, looking{0};
    std::atomic<unsigned> posted{0};  // jobs so far
    pid_t process = getpid();
};

static Job* unfinished(Pool& pool) {
    for (size_t i = pool.jobs.size(); i-- > 0;)
        if (pool.jobs[i]->unfinished()) return pool.jobs[i];
    return nullptr;
}

// How long a thread looks for work: less after each time in vain, so that it hardly disturbs others where jobs are rare.
class Patience {
    Microseconds now = PATIENCE;
    int turns = 0;

  public:
    // whether there was something to do, which may be done by now
    bool look_for_work(Pool& pool, unsigned seen) {
        if (++turns % 16 == 0) now = PATIENCE;
        ++pool.looking;
        const bool found = look(now, [&] { return pool.posted.load(std::memory_order_acquire) != seen; });
        --pool.looking;
        now = found ? PATIENCE : now / 2;
        return found;
    }
};

static void work_forever(Pool& pool, int number) {
    this_thread = number + 1;
    Patience patience;
    std::unique_lock<std::mutex> lock(pool.mutex);
    for (;;) {
        Job* job = nullptr;
        auto found = [&] { return number < pool.allowed && (job = unfinished(pool)); };
        for (bool hope = number < pool.allowed; hope && !found();) {
            const unsigned seen = pool.posted;
            lock.unlock();
            hope = patience.look_for_work(pool, seen);
            lock.lock();
        }
        if (!job) {
            ++pool.idle;
            pool.work.wait(lock, found);
            --pool.idle;
        }
        ++job->helpers;
        lock.unlock();
        job->work(this_thread);
        lock.lock();
        if (--job->helpers == 0) pool.finished.notify_all();
    }
}

// the pool of this process: a forked one has no threads and makes a pool of its own.  Never deleted, because its
// threads sleep until the process ends.
static Pool& the_pool() {
    static std::atomic<Pool*> pool{new Pool};
    Pool* now = pool.load();
    if (now->process != getpid()) {
        Pool* own = new Pool;
        pool.compare_exchange_strong(now, own);
        now = pool.load();
    }
    return *now;
}

void set_threads(int count) {
    Pool& pool = the_pool();
    std::lock_guard<std::mutex> lock(pool.mutex);
    pool.allowed = std::max(count, 1) - 1;
    for (; pool.workers < pool.allowed; ++pool.workers)
        std::thread(work_forever, std::ref(pool), pool.workers).detach();
}

// blocks from `first` on
static void share(Pool& pool, long first, long count, Body body, void* context) {
    if (count - first <= 1 || pool.allowed == 0) {
        for (long i = first; i < count; ++i) body(context, i);
        return;
    }
    Job job(body, context, first, count, pool.allowed + 1);
    std::unique_lock<std::mutex> lock(pool.mutex);
    pool.jobs.push_back(&job);
    ++pool.posted;
    if (pool.idle) pool.work.notify_all();
    lock.unlock();
    job.work(this_thread);
    lock.lock();
    pool.jobs.erase(std::find(pool.jobs.begin(), pool.jobs.end(), &job));
    if (job.helpers == 0) return;
    lock.unlock();  // nobody else can come to help now
    if (look(PATIENCE, [&] { return job.helpers == 0; })) return;
    lock.lock();
    pool.finished.wait(lock, [&] { return job.helpers == 0; });
}

void run_blocks(long count, Body body, void* context) { share(the_pool(), 0, count, body, context); }

void run_short_blocks(long count, Body body, void* context) {
    Pool& pool = the_pool();
    long first = 0;
    if (count > 1 && pool.allowed) {
        const auto start = Clock::now();
        body(context, first++);
        if ((Clock::now() - start) * (count - first) < (pool.looking ? WORTH_SHARING : WORTH_WAKING)) {
            for (; first < count; ++first) body(context, first);
        }
    }
    share(pool, first, count, body, context);
}

}  // namespace equibayes
