// Memory that is kept from call to call and grows when it must.
#pragma once
#include <cstdlib>
#include <cstring>
#include <new>

namespace equibayes {

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

}  // namespace equibayes
