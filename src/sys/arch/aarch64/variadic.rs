//! Functions with `...` by the procedure call standard AAPCS64: a naked function saves what its Rust body cannot see.
//!
//! Six named arguments leave two registers for integers; the further ones are there, in the eight registers for
//! floating-point numbers, and on the stack.

use std::ffi::c_void;

/// The `va_list`.
#[repr(C)]
pub struct VaList {
    stack: *const c_void,
    /// The end of the integers.
    gr_top: *const c_void,
    /// The end of the floating-point numbers.
    vr_top: *const c_void,
    /// From the end to the next one, in bytes: 0 or negative.
    gr_offs: i32,
    vr_offs: i32,
}

/// Registers as a `va_list` expects them: x6 and x7, v0 to v7. [`variadic`] saves them in this order.
#[repr(C, align(16))]
pub struct SavedRegisters {
    integers: [u64; 2],
    floats: [[u64; 2]; 8],
}

impl VaList {
    /// What is behind six named arguments: in saved registers, and on the stack from there on. It is valid as long as
    /// both are.
    pub fn new(registers: &SavedRegisters, stack: *const c_void) -> Self {
        Self {
            stack,
            gr_top: registers.integers.as_ptr_range().end.cast(),
            vr_top: registers.floats.as_ptr_range().end.cast(),
            gr_offs: -(size_of_val(&registers.integers) as i32),
            vr_offs: -(size_of_val(&registers.floats) as i32),
        }
    }

    /// As C takes it: a list that is larger than two registers is passed by its address.
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
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $a0: $t0, $a1: $t1, $a2: $t2, $a3: $t3, $a4: $t4, $a5: $t5,
        ) {
            /// Has the saved registers and the stack's arguments in place of the seventh and eighth.
            unsafe extern "C" fn with_list(
                $a0: $t0, $a1: $t1, $a2: $t2, $a3: $t3, $a4: $t4, $a5: $t5,
                registers: &$crate::sys::arch::SavedRegisters, stack: *const std::ffi::c_void,
            ) {
                let mut list = $crate::sys::arch::VaList::new(registers, stack);
                let $list = list.as_ptr();
                $body
            }
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-16]!",
                "mov x29, sp",
                "sub sp, sp, #144",
                "stp x6, x7, [sp]",
                "stp q0, q1, [sp, #16]",
                "stp q2, q3, [sp, #48]",
                "stp q4, q5, [sp, #80]",
                "stp q6, q7, [sp, #112]",
                "mov x6, sp",
                "add x7, x29, #16",
                "bl {with_list}",
                "mov sp, x29",
                "ldp x29, x30, [sp], #16",
                "ret",
                with_list = sym with_list,
            )
        }
    };
}

pub(crate) use variadic;
