// Memory that is kept from call to call and grows when it must.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

namespace equibayes {

// Whether memory whose contents are undefined is filled with NaN, so that tests see who reads it.
inline bool poisoned() {
    static const bool on = std::getenv("EQUIBAYES_POISON") != nullptr;
    return on;
}

template <class T> class Buffer {
    T* start = nullptr;
    long room = 0;

  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { free(start); }

    // room for `count` values, whose contents are undefined
    T* size(long count) {
        if (count > room || !start) {
            free(start);
            room = count + count / 8 + 64;
            start = (T*)aligned_alloc(64, (room * sizeof(T) + 63) / 64 * 64);
            if (!start) throw std::bad_alloc();
        }
        if constexpr (std::is_floating_point<T>::value)
            if (poisoned()) std::fill(start, start + room, std::numeric_limits<T>::quiet_NaN());
        return start;
    }
    T* zeros(long count) {
        size(count);
        memset(start, 0, count * sizeof(T));
        return start;
    }
    operator T*() { return start; }
    operator const T*() const { return start; }
};

// Objects with much memory, of which there are as many as are used at the same time: the last one that was given back
// is used again, while its memory is still in the cache.
template <class T> class Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<T>> idle;

  public:
    // an object until the end of a scope
    class Borrowed {
        Pool& pool;
        std::unique_ptr<T> own;

      public:
        Borrowed(Pool& pool) : pool(pool) {
            std::lock_guard<std::mutex> lock(pool.mutex);
            if (!pool.idle.empty()) own = std::move(pool.idle.back()), pool.idle.pop_back();
            if (!own) own.reset(new T);
        }
        ~Borrowed() {
            std::lock_guard<std::mutex> lock(pool.mutex);
            pool.idle.push_back(std::move(own));
        }
        T& operator*() { return *own; }
    };
};

}  // namespace equibayes
