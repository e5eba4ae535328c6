//! Functions with `...` by the System V ABI: it lets a function that is not variadic see what one sees.
//!
//! Six named arguments fill the registers for integers, so the further ones are in the eight registers for
//! floating-point numbers and on the stack, which is where the parameters behind the sixth are.

use std::ffi::c_void;

/// The `va_list`.
#[repr(C)]
pub struct VaList {
    gp_offset: u32,
    fp_offset: u32,
    overflow_arg_area: *const StackArguments,
    reg_save_area: *const SavedRegisters,
}

/// Registers as a `va_list` expects them: six for integers, eight for floating-point numbers.
#[repr(C, align(16))]
pub struct SavedRegisters {
    integers: [u64; 6],
    floats: [[f64; 2]; 8],
}

/// Arguments on the stack, passed by value: its address is that of the first of them. There may be more or fewer.
#[repr(C)]
pub struct StackArguments([u64; 8]);

impl SavedRegisters {
    /// Those for floating-point numbers; no further argument is in the others.
    pub fn new(floats: [f64; 8]) -> Self {
        Self {
            integers: [0; 6],
            floats: floats.map(|low| [low, 0.0]),
        }
    }
}

impl VaList {
    /// What is behind six named arguments. It is valid as long as both are.
    pub fn new(registers: &SavedRegisters, stack: &StackArguments) -> Self {
        Self {
            gp_offset: size_of_val(&registers.integers) as u32,
            fp_offset: size_of_val(&registers.integers) as u32,
            overflow_arg_area: stack,
            reg_save_area: registers,
        }
    }

    /// As C takes it.
    pub fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }
}

/// A copy of a `va_list`, which reading uses up; zeros for NULL.
///
/// # Safety
/// `list` is NULL or a `va_list`.
pub unsafe fn copy_list(list: *mut c_void) -> [u64; 4] {
    let mut copy = [0; 4];
    if !list.is_null() {
        const { assert!(size_of::<VaList>() <= size_of::<[u64; 4]>()) };
        // SAFETY: the caller's list is as long as VaList, which fits into the copy; they do not overlap.
        unsafe {
            list.cast::<VaList>()
                .copy_to_nonoverlapping(copy.as_mut_ptr().cast(), 1)
        };
    }
    copy
}

/// Defines an exported function of C's with six named parameters, none of them floating-point or larger than a
/// register, and `...` behind them, which its body has as a `va_list`: `pub unsafe fn name(...) with list { ... }`.
macro_rules! variadic {
    (
        $(#[$about:meta])*
        pub unsafe fn $name:ident(
            $a0:ident: $t0:ty, $a1:ident: $t1:ty, $a2:ident: $t2:ty,
            $a3:ident: $t3:ty, $a4:ident: $t4:ty, $a5:ident: $t5:ty $(,)?
        ) with $list:ident $body:block
    ) => {
        $(#[$about])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $a0: $t0, $a1: $t1, $a2: $t2, $a3: $t3, $a4: $t4, $a5: $t5,
            f0: f64, f1: f64, f2: f64, f3: f64, f4: f64, f5: f64, f6: f64, f7: f64,
            stack: $crate::sys::arch::StackArguments,
        ) {
            let registers = $crate::sys::arch::SavedRegisters::new([f0, f1, f2, f3, f4, f5, f6, f7]);
            let mut list = $crate::sys::arch::VaList::new(&registers, &stack);
            let $list = list.as_ptr();
            $body
        }
    };
}

pub(crate) use variadic;
