# The macros of Fedora's cmake package, for systems whose rpm does not have them (Debian):
# packaging/build-rpm.sh loads this file there, so the spec needs no special case. That rpm
# has no debuginfo packages either, so installed files are stripped.
%__cmake_builddir build-%{_target_cpu}
%cmake \
    CFLAGS="${CFLAGS:-%{optflags}}" ; export CFLAGS ; \
    cmake -S . -B %{__cmake_builddir} -DCMAKE_INSTALL_PREFIX=%{_prefix} \\\
        -DCMAKE_INSTALL_LIBDIR=%{_lib} -DCMAKE_INSTALL_SO_NO_EXE=0
%cmake_build cmake --build %{__cmake_builddir} %{?_smp_mflags}
%cmake_install DESTDIR=%{buildroot} cmake --install %{__cmake_builddir} --strip
%ctest ctest --test-dir %{__cmake_builddir} --output-on-failure %{?_smp_mflags}
