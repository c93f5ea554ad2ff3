// SPDX-License-Identifier: Apache-2.0
/// \file   tools/reshard/spill.hpp
/// \brief  Memory that the system may write to disk: more than the machine has can be worked on.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

namespace command::mch {

using namespace reshard;

/// Zeros, in a file without a name in `folder`, mapped. Throws IoError when the folder or its disk has no room.
class Spill {
public:
    Spill() = default;
    Spill(std::string const& folder, Index bytes) : size_(static_cast<std::size_t>(bytes)) {
        if (bytes == 0) return;
        std::error_code ignored;  // asked first: a file that does not fit would fill the disk before it fails
        if (std::filesystem::space(folder, ignored).available < size_) refuse(folder, ENOSPC);
        std::string path = folder + "/.reshard-spill-XXXXXX";
        int const file = ::mkstemp(path.data());
        int error = file < 0 ? errno : 0;
        if (file >= 0) {
            ::unlink(path.c_str());
            error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));  // else a full disk is a signal, later
            void* const at =
                error != 0 ? MAP_FAILED : ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (error == 0 && at == MAP_FAILED) error = errno;
            ::close(file);
            if (error == 0) data_ = static_cast<std::byte*>(at);
        }
        if (error != 0) refuse(folder, error);
    }
    Spill(Spill&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Spill& operator=(Spill&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Spill() {
        if (data_ != nullptr) ::munmap(data_, size_);
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }

private:
    [[noreturn]] void refuse(std::string const& folder, int error) const {
        errors::raise(ErrorCode::io, "no room for ", size_, " bytes in '", folder, "': ", std::strerror(error),
                      ". Fix: free some space, or write to another disk.");
    }

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace command::mch
