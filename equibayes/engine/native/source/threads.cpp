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

constexpr std::chrono::microseconds WORTH_WAKING{50};

struct Job {
    Body body;
    void* context;
    long count;
    std::atomic<long> next;
    int helpers = 0;  // threads of the pool that are at work on it
};

struct Pool {
    std::mutex mutex;
    std::condition_variable work, finished;
    std::vector<Job*> jobs;  // the newest, which others wait for, last
    int workers = 0, idle = 0;
    std::atomic<int> allowed{0};
    pid_t process = getpid();
};

static void work_on(Job& job) {
    for (long i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.count;) job.body(job.context, i);
}

static Job* unfinished(Pool& pool) {
    for (size_t i = pool.jobs.size(); i-- > 0;)
        if (pool.jobs[i]->next.load(std::memory_order_relaxed) < pool.jobs[i]->count) return pool.jobs[i];
    return nullptr;
}

static void work_forever(Pool& pool, int number) {
    std::unique_lock<std::mutex> lock(pool.mutex);
    for (;;) {
        Job* job = nullptr;
        ++pool.idle;
        pool.work.wait(lock, [&] { return number < pool.allowed && (job = unfinished(pool)); });
        --pool.idle;
        ++job->helpers;
        lock.unlock();
        work_on(*job);
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
    Job job{body, context, count, {first}};
    std::unique_lock<std::mutex> lock(pool.mutex);
    pool.jobs.push_back(&job);
    if (pool.idle) pool.work.notify_all();
    lock.unlock();
    work_on(job);
    lock.lock();
    pool.jobs.erase(std::find(pool.jobs.begin(), pool.jobs.end(), &job));
    pool.finished.wait(lock, [&] { return job.helpers == 0; });
}

void run_blocks(long count, Body body, void* context) { share(the_pool(), 0, count, body, context); }

void run_short_blocks(long count, Body body, void* context) {
    using Clock = std::chrono::steady_clock;
    Pool& pool = the_pool();
    long first = 0;
    if (count > 1 && pool.allowed) {
        const auto start = Clock::now();
        body(context, first++);
        if ((Clock::now() - start) * (count - first) < WORTH_WAKING) {
            for (; first < count; ++first) body(context, first);
        }
    }
    share(pool, first, count, body, context);
}

}  // namespace equibayes
