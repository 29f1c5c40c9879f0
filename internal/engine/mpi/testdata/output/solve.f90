program solve
  use iso_c_binding
  implicit none
  interface
    function start() bind(c) result(rank)
      import c_int
      integer(c_int) :: rank
    end function
    subroutine finish() bind(c)
    end subroutine
  end interface
  character(16) :: how
  integer :: rank, unit
  call get_command_argument(1, how)
  rank = start()
  if (rank == 3) then
    select case (how)
    case ('open')
      open(newunit=unit, file='/data/mesh.dat', status='old')
    case ('stop')
      write(*, '(a)') 'residual 1.0E+30'
      error stop 'solver diverged'
    case ('code')
      stop 3
    end select
  end if
  call finish()
end program
