//! Memory that is handed out from front to back and is all free at the next call.

use core::{arch::wasm32, mem, ops, ptr, slice, str};

use crate::{log, Level};

const PAGE: u64 = 65536;

static mut USED: u64 = 0;

extern "C" {
    static __heap_base: u8;
}

/// Frees all. Nothing that was handed out before may be used then.
pub(crate) fn reset() {
    unsafe { USED = ptr::addr_of!(__heap_base) as u64 }
}

/// Gives size bytes, not cleared. Where there is no more memory it says so in the log and ends the call.
pub(crate) fn bytes(size: u64, align: u64) -> *mut u8 {
    let at = unsafe { (USED + align - 1) / align * align };
    let have = wasm32::memory_size(0) as u64 * PAGE;
    let upto = at + size;
    if upto > have && wasm32::memory_grow(0, ((upto - have + PAGE - 1) / PAGE) as usize) == usize::MAX {
        log(Level::Error, "out of memory: raise the memory limit of the type in node.toml");
        wasm32::unreachable()
    }
    unsafe { USED = upto }
    at as *mut u8
}

/// A slice of n times value.
pub fn filled<T: Copy>(n: usize, value: T) -> &'static mut [T] {
    let at = bytes(n as u64 * mem::size_of::<T>() as u64, mem::align_of::<T>() as u64) as *mut T;
    unsafe {
        for i in 0..n {
            at.add(i).write(value);
        }
        slice::from_raw_parts_mut(at, n)
    }
}

/// Puts texts together.
pub fn say(parts: &[&str]) -> &'static str {
    let mut text = List::new();
    for part in parts {
        text.extend(part.as_bytes());
    }
    // Made of whole texts.
    unsafe { str::from_utf8_unchecked(text.into_slice()) }
}

/// A list that grows.
pub struct List<T: Copy> {
    at: *mut T,
    len: usize,
    room: usize,
}

impl<T: Copy> List<T> {
    pub fn new() -> Self {
        List { at: ptr::NonNull::dangling().as_ptr(), len: 0, room: 0 }
    }

    fn reserve(&mut self, more: usize) {
        if self.room - self.len >= more {
            return;
        }
        let room = (self.len + more).max(2 * self.room).max(8);
        let at = bytes(room as u64 * mem::size_of::<T>() as u64, mem::align_of::<T>() as u64) as *mut T;
        unsafe { ptr::copy_nonoverlapping(self.at, at, self.len) }
        self.at = at;
        self.room = room;
    }

    pub fn push(&mut self, value: T) {
        self.reserve(1);
        unsafe { self.at.add(self.len).write(value) }
        self.len += 1;
    }

    pub fn extend(&mut self, values: &[T]) {
        self.reserve(values.len());
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.at.add(self.len), values.len()) }
        self.len += values.len();
    }

    pub fn into_slice<'a>(self) -> &'a [T]
    where
        T: 'a,
    {
        unsafe { slice::from_raw_parts(self.at, self.len) }
    }
}

impl<T: Copy> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> ops::Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        unsafe { slice::from_raw_parts(self.at, self.len) }
    }
}
