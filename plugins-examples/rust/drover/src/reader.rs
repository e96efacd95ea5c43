//! A reader of CBOR that never looks behind the end of its input, and whose work its bytes bound.

use core::str;

use crate::Error;

pub(crate) const UINT: u8 = 0;
pub(crate) const BYTES: u8 = 2;
pub(crate) const TEXT: u8 = 3;
pub(crate) const ARRAY: u8 = 4;
pub(crate) const MAP: u8 = 5;
pub(crate) const TAG: u8 = 6;
pub(crate) const SIMPLE: u8 = 7;

pub(crate) const FALSE: u8 = 0xf4;
pub(crate) const TRUE: u8 = 0xf5;
pub(crate) const NULL: u8 = 0xf6;
const BREAK: u8 = 0xff;

/// Arrays, maps and strings of indefinite length that may be open at once.
const MAX_OPEN: usize = 32;

#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    data: &'a [u8],
    pos: usize,
}

/// The elements of an array, or entries of a map, that are still to come; None: up to a break.
pub(crate) struct Items(Option<u64>);

impl<'a> Reader<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Reader { data, pos: 0 }
    }

    fn left(&self) -> u64 {
        (self.data.len() - self.pos) as u64
    }

    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.left() == 0 { Ok(()) } else { Err("bytes follow") }
    }

    /// Passes over a byte, if that is what comes next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let there = self.data.get(self.pos) == Some(&byte);
        self.pos += there as usize;
        there
    }

    fn bytes(&mut self, n: u64) -> Result<&'a [u8], Error> {
        if n > self.left() {
            return Err("the input ends inside a value");
        }
        let from = self.pos;
        self.pos += n as usize;
        Ok(&self.data[from..self.pos])
    }

    /// Reads kind and argument of a value; None for what has no length, and for a break.
    #[inline(never)]
    fn head(&mut self) -> Result<(u8, Option<u64>), Error> {
        let first = match self.data.get(self.pos) {
            Some(b) => *b,
            None => return Err("the input ends where a value should be"),
        };
        self.pos += 1;
        let (major, info) = (first >> 5, first & 31);
        match info {
            0..=23 => Ok((major, Some(info as u64))),
            24..=27 => {
                let n = self.bytes(1 << (info - 24))?.iter().fold(0, |n, b| n << 8 | *b as u64);
                if major == SIMPLE && info == 24 && n < 32 {
                    return Err("not well-formed CBOR");
                }
                Ok((major, Some(n)))
            }
            31 if major >= BYTES && major != TAG => Ok((major, None)),
            _ => Err("not well-formed CBOR"),
        }
    }

    #[inline(never)]
    pub(crate) fn uint(&mut self) -> Result<u64, Error> {
        match self.head()? {
            (UINT, Some(n)) => Ok(n),
            _ => Err("want an unsigned integer"),
        }
    }

    /// Reads an unsigned integer below limit.
    pub(crate) fn below(&mut self, limit: usize) -> Result<u32, Error> {
        let n = self.uint()?;
        if n < limit as u64 { Ok(n as u32) } else { Err("out of range") }
    }

    pub(crate) fn byte_string(&mut self) -> Result<&'a [u8], Error> {
        match self.head()? {
            (BYTES, Some(n)) => self.bytes(n),
            _ => Err("want a byte string of definite length"),
        }
    }

    #[inline(never)]
    pub(crate) fn text(&mut self) -> Result<&'a str, Error> {
        match self.head()? {
            (TEXT, Some(n)) => str::from_utf8(self.bytes(n)?).map_err(|_| "the text is not UTF-8"),
            _ => Err("want text of definite length"),
        }
    }

    #[inline(never)]
    pub(crate) fn open(&mut self, want: u8) -> Result<Items, Error> {
        let (major, n) = self.head()?;
        if major != want {
            return Err(if want == MAP { "want a map" } else { "want an array" });
        }
        if n > Some(self.left()) {
            return Err("the input ends inside an array or map"); // each takes a byte at least
        }
        Ok(Items(n))
    }

    /// Tells whether another element follows.
    pub(crate) fn more(&mut self, items: &mut Items) -> bool {
        match &mut items.0 {
            None => !self.take(BREAK), // at the end of the input the element's own read fails
            Some(0) => false,
            Some(n) => {
                *n -= 1;
                true
            }
        }
    }

    /// Reads the tag and the bytes of a typed array.
    #[inline(never)]
    pub(crate) fn typed(&mut self, tags: &[u64]) -> Result<(usize, &'a [u8]), Error> {
        let width = match self.head()? {
            (TAG, Some(tag)) if tags.contains(&tag) => match tag {
                69 => 2,
                70 => 4,
                _ => 8,
            },
            _ => return Err("want a typed array"),
        };
        let bytes = self.byte_string()?;
        if bytes.len() % width != 0 {
            return Err("the length of a typed array is no multiple of its element's");
        }
        Ok((width, bytes))
    }

    /// Passes over one value of any kind and returns its bytes. It does not recurse: of what has a length the elements are counted, whatever they are in.
    #[inline(never)]
    pub(crate) fn skip(&mut self) -> Result<&'a [u8], Error> {
        let from = self.pos;
        let mut open = [(0u64, 0u8, false); MAX_OPEN]; // what is left outside, kind, whether a key waits for its value
        let mut depth = 0;
        let mut left = 1;
        loop {
            if left == 0 {
                if depth == 0 {
                    return Ok(&self.data[from..self.pos]);
                }
                let (outside, major, odd) = &mut open[depth - 1];
                if self.take(BREAK) {
                    if *odd {
                        return Err("a key without a value");
                    }
                    left = *outside;
                    depth -= 1;
                    continue;
                }
                *odd = *major == MAP && !*odd;
                left = 1;
            }
            let (major, n) = self.head()?;
            left -= 1;
            let within = if depth > 0 { open[depth - 1].1 } else { ARRAY };
            if within < ARRAY && (major != within || n.is_none()) {
                return Err("not well-formed CBOR"); // a string is made of its like
            }
            match (major, n) {
                (SIMPLE, None) => return Err("a break without an open array or map"),
                (_, None) => {
                    if depth == MAX_OPEN {
                        return Err("nested too deep");
                    }
                    open[depth] = (left, major, false);
                    depth += 1;
                    left = 0;
                }
                (BYTES | TEXT, Some(n)) => {
                    self.bytes(n)?;
                }
                (ARRAY | MAP, Some(n)) => {
                    if n > self.left() {
                        return Err("the input ends inside an array or map");
                    }
                    left += if major == MAP { 2 * n } else { n };
                }
                (TAG, _) => left += 1,
                _ => {}
            }
            if left > self.left() {
                return Err("the input ends inside an array or map");
            }
        }
    }
}
